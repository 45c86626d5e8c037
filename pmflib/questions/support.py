"""How much data stands behind an answer, and what no data stand behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from pmflib.arrays import IntArray
from pmflib.questions.binding import BoundQuestion
from pmflib.questions.conditions import (
    Conditions,
    count_meeting,
    describe_conditions,
    find_unseen,
)
from pmflib.questions.evidence import Evidence
from pmflib.schema import Schema

FEW = 10
"""Samples below which an answer says that there were only so many."""


@dataclass(frozen=True)
class ConditionSupport:
    """Samples that met a set of conditions.

    Parameters
    ----------
    conditions
        In words; empty without any.
    samples
        Samples that met them, and, with ``with_targets``, hold the variables asked for.
    is_exact
        False where pairs of levels do not say it: then there are at most so many.
    with_targets
        Samples of these that hold the variables asked for; at most so many where these or the conditions are several.
    expected
        Samples that the model expects to meet three conditions or more, at most. None for fewer conditions.
    """

    conditions: str
    samples: int
    is_exact: bool
    with_targets: int
    expected: float | None = None


@dataclass(frozen=True)
class Support:
    """Samples behind an answer.

    Parameters
    ----------
    n_rows
        All samples of the data.
    variables
        Samples that hold each variable of the question, by name.
    pairs
        Two of these variables, and the samples that hold both; the least first. Empty for one variable, or where pairs
        are not known.
    given
        What is known of each set of conditions.
    """

    n_rows: int
    variables: Mapping[str, int]
    pairs: Sequence[tuple[str, str, int]]
    given: Sequence[ConditionSupport]

    @property
    def least_pair(self) -> tuple[str, str, int] | None:
        """Pair with the fewest samples."""
        return self.pairs[0] if self.pairs else None

    def __str__(self) -> str:
        """One line for a person."""
        said = [f"{self.n_rows:,} samples"]
        if (least := self.least_pair) is not None:
            first, second, n = least
            if len(self.pairs) == 1:
                said.append(f"{n:,} hold {first} and {second}")
            else:
                said.append(
                    f"at least {n:,} hold any two of these variables (fewest: {first} and {second})"
                )
        else:
            said += [f"{n:,} hold {name}" for name, n in self.variables.items()]
        for each in self.given:
            if each.conditions:
                most = "" if each.is_exact else "at most "
                said.append(f"{most}{each.samples:,} have {each.conditions}")
        return "; ".join(said)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "samples": self.n_rows,
            "variables": dict(self.variables),
            "pairs": [{"variables": [a, b], "samples": n} for a, b, n in self.pairs],
            "given": [asdict(each) for each in self.given],
        }


@dataclass(frozen=True, eq=False)
class _Block:
    """Counts of the variables of a question alone, whose levels are stacked anew."""

    table: IntArray
    offsets: IntArray
    places: Mapping[int, int]

    def shift(self, conditions: Conditions) -> dict[int, tuple[int, ...]]:
        return {self.places[place]: codes for place, codes in conditions.items()}

    def rows_of(self, place: int) -> slice:
        new = self.places[place]
        return slice(int(self.offsets[new]), int(self.offsets[new + 1]))


def find_support(
    bound: BoundQuestion, evidence: Evidence, chances: Sequence[float]
) -> tuple[Support, list[str], IntArray | None]:
    """Find the samples behind an answer.

    Parameters
    ----------
    bound
        The question.
    evidence
        The data.
    chances
        Probability of each set of conditions under the model.

    Returns
    -------
    The support; warnings, a sentence each, of what no or few samples stand behind; and, where the question has two
    variables at most, the samples behind each combination of their levels, in order of ``bound.involved``.
    """
    schema = bound.schema
    singles = {
        schema[place].name: int(evidence.singles[schema.rows_of(place)].sum())
        for place in bound.involved
    }
    doubts = [
        f"{name!r} was never observed: what is said of it is no knowledge"
        for name, n in singles.items()
        if not n
    ]
    if evidence.read_pairs is None:
        found, unmet = _count_singles(bound, evidence)
        return Support(evidence.n_rows, singles, (), found), doubts + unmet, None
    block = _read_block(schema, bound.involved, evidence)
    pairs = []
    for first, second in combinations(bound.involved, 2):
        n = int(block.table[block.rows_of(first), block.rows_of(second)].sum())
        pairs.append((schema[first].name, schema[second].name, n))
        if not n and singles[schema[first].name] and singles[schema[second].name]:
            doubts.append(
                f"{schema[first].name!r} and {schema[second].name!r} were never observed together: what is said of "
                "both comes through other variables"
            )
    given = []
    for conditions, chance in zip(bound.given, chances, strict=True):
        given.append(_describe(bound, evidence, block, conditions, chance))
        doubts += _doubt(bound, block, conditions, given[-1])
    pairs.sort(key=lambda pair: pair[2])
    support = Support(evidence.n_rows, singles, tuple(pairs), tuple(given))
    return support, doubts, _count_cells(bound, block)


def _read_block(schema: Schema, places: Sequence[int], evidence: Evidence) -> _Block:
    assert evidence.read_pairs is not None
    levels = np.concatenate([np.arange(schema.n_levels)[schema.rows_of(place)] for place in places])
    offsets = np.concatenate([[0], np.cumsum([schema[place].cardinality for place in places])])
    order = {place: new for new, place in enumerate(places)}
    return _Block(evidence.read_pairs(levels), offsets, order)


def _describe(
    bound: BoundQuestion,
    evidence: Evidence,
    block: _Block,
    conditions: Conditions,
    chance: float,
) -> ConditionSupport:
    """Samples that meet some conditions."""
    words = describe_conditions(bound.schema, conditions)
    places = list(conditions)
    if not places:
        n_with = min(
            int(block.table[block.rows_of(t), block.rows_of(t)].sum()) for t in bound.targets
        )
        return ConditionSupport("", evidence.n_rows, True, n_with)
    mine = block.shift(conditions)
    ways = [[place] for place in mine] if len(mine) == 1 else combinations(mine, 2)
    n = min(count_meeting(block.table, block.offsets, mine, way) for way in ways)
    others = [place for place in bound.targets if place not in conditions]
    with_targets = [n]
    for place, codes in mine.items():
        rows = int(block.offsets[place]) + np.array(codes)
        with_targets += [int(block.table[rows, block.rows_of(t)].sum()) for t in others]
    expected = None
    if len(mine) > 2:
        held = min(
            int(block.table[block.rows_of(a), block.rows_of(b)].sum())
            for a, b in combinations(places, 2)
        )
        expected = chance * held
    return ConditionSupport(words, n, len(mine) < 3, min(with_targets), expected)


def _doubt(
    bound: BoundQuestion, block: _Block, conditions: Conditions, found: ConditionSupport
) -> list[str]:
    """Sentences on conditions that no samples meet, or few."""
    if not conditions:
        return []
    mine = block.shift(conditions)
    back = {new: place for place, new in block.places.items()}
    if unseen := find_unseen(block.table, block.offsets, mine):
        words = describe_conditions(bound.schema, conditions, [back[place] for place in unseen])
        return [
            f"no row of the data has {words}: this answer is what the model makes of rows like it"
        ]
    if not found.with_targets:
        names = ", ".join(bound.schema[place].name for place in bound.targets)
        return [f"no row of the data that has {found.conditions} holds {names}"]
    most = "only" if found.is_exact else "at most"
    if found.samples < FEW:
        return [f"{most} {found.samples} rows of the data have {found.conditions}"]
    if found.with_targets < FEW:
        names = ", ".join(bound.schema[place].name for place in bound.targets)
        return [
            f"of the rows of the data that have {found.conditions} only {found.with_targets} hold {names}"
        ]
    if found.expected is not None and found.expected < 1:
        return [
            f"counts of pairs do not say whether a row of the data has {found.conditions}, and the model expects "
            f"{found.expected:.2g}: this answer may be of nobody"
        ]
    return []


def _count_singles(
    bound: BoundQuestion, evidence: Evidence
) -> tuple[list[ConditionSupport], list[str]]:
    """Do the same by counts of levels alone."""
    found, doubts = [], []
    for conditions in bound.given:
        n = evidence.n_rows
        for place, codes in conditions.items():
            met = int(evidence.singles[bound.schema.rows_of(place)][list(codes)].sum())
            n = min(n, met)
            if not met:
                words = describe_conditions(bound.schema, conditions, [place])
                doubts.append(
                    f"no row of the data has {words}: this answer is what the model makes of rows like it"
                )
        words = describe_conditions(bound.schema, conditions)
        found.append(ConditionSupport(words, n, len(conditions) < 2, n))
    return found, doubts


def _count_cells(bound: BoundQuestion, block: _Block) -> IntArray | None:
    """Samples behind each combination of the levels of two variables, or of one."""
    places = bound.involved
    if len(places) > 2:
        return None
    if len(places) == 1:
        cells: IntArray = np.diagonal(block.table).copy()
        return cells
    table: IntArray = block.table[block.rows_of(places[0]), block.rows_of(places[1])]
    return table
