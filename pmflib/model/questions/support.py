"""How much data stands behind an answer, what no data support, and whether counts contradict the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations

import numpy as np

from pmflib.core.arrays import FLOOR, FloatArray, IntArray
from pmflib.counting.conditional_tables import TableRequest
from pmflib.display.summary import decimal
from pmflib.model.conditions import Conditions, describe_conditions, list_few
from pmflib.model.questions.evidence import Evidence
from pmflib.model.questions.question import BoundQuestion
from pmflib.schema import Schema

LEAST_EXPECTED = 5.0
"""Samples expected in a cell from which on the law of chi-squared is near, by Cochran's rule for four cells in five."""
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
        False where counts of pairs do not say it: then there are at most so many.
    with_targets
        Samples of these that hold the variables asked for; at most so many where counts of pairs do not say it.
    expected
        Samples that the model expects to meet the conditions, at most, where it is not known how many do; else None.
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
    n_counted
        Samples in which three variables or more were counted, where these are not all; None where they are.
    are_effective
        Whether all of these are effective samples, by weights or a design.
    """

    n_rows: int
    variables: Mapping[str, int]
    pairs: Sequence[tuple[str, str, int]]
    given: Sequence[ConditionSupport]
    n_counted: int | None = None
    are_effective: bool = False

    @property
    def least_pair(self) -> tuple[str, str, int] | None:
        """Pair with the fewest samples."""
        return self.pairs[0] if self.pairs else None

    def __str__(self) -> str:
        """One line for a person."""
        what = "effective samples" if self.are_effective else "samples"
        said = [f"{self.n_rows:,} {what}"]
        if self.n_counted is not None:
            said = [f"{self.n_counted:,} of {self.n_rows:,} {what} were counted"]
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

    def to_json(self) -> dict[str, object]:
        """Plain JSON types."""
        return {
            "samples": self.n_rows,
            "effective": self.are_effective,
            "counted_samples": self.n_rows if self.n_counted is None else self.n_counted,
            "variables": dict(self.variables),
            "pairs": [{"variables": [a, b], "samples": n} for a, b, n in self.pairs],
            "given": [asdict(each) for each in self.given],
        }


def find_support(
    bound: BoundQuestion,
    evidence: Evidence,
    counted: Sequence[IntArray | None],
    chances: Sequence[float],
) -> tuple[Support, list[str]]:
    """Find the samples behind an answer.

    Parameters
    ----------
    bound
        The question.
    evidence
        The data.
    counted
        Samples that meet each set of conditions, by combination of levels of the variables asked for; None where that
        is not known.
    chances
        Probability of each set of conditions under the model.

    Returns
    -------
    The support; and warnings, a sentence each, of what no or few samples stand behind.
    """
    schema = bound.schema
    evidence.count(list_support_requests(bound))
    singles = {
        schema[position].name: _count(evidence, _request_all(bound, [position]))
        for position in bound.involved
    }
    doubts = [
        f"{name!r} was never observed: what is said of it is no knowledge"
        for name, n in singles.items()
        if n == 0
    ]
    pairs = []
    for first, second in combinations(bound.involved, 2):
        n = _count(evidence, _request_all(bound, [first, second]))
        names = schema[first].name, schema[second].name
        if n is not None:
            pairs.append((*names, n))
        if n == 0 and singles[names[0]] and singles[names[1]]:
            doubts.append(
                f"{names[0]!r} and {names[1]!r} were never observed together: what is said of both comes through other "
                "variables"
            )
    given = []
    for conditions, counts, chance in zip(bound.given, counted, chances, strict=False):
        given.append(_describe(bound, evidence, conditions, counts, chance))
        doubts += _doubt(bound, evidence, conditions, given[-1])
    pairs.sort(key=lambda pair: pair[2])
    known = {name: n for name, n in singles.items() if n is not None}
    found = evidence.n_rows, known, tuple(pairs), tuple(given), evidence.n_counted
    return Support(*found, evidence.are_effective), doubts


def list_support_requests(bound: BoundQuestion) -> list[TableRequest]:
    """Numbers of samples that support of a question needs: what is given, by one, two and all; and what is observed."""
    involved = [*bound.involved]
    sets = [*((each,) for each in involved), *combinations(involved, 2)]
    found = [_request_all(bound, positions) for positions in sets]
    for given in bound.given:
        found.append(_request(given))
        found += [_request({each: given[each] for each in few}) for few in list_few(given)]
    return found


def _request_all(bound: BoundQuestion, positions: Sequence[int]) -> TableRequest:
    """Ask for the samples that hold some variables, whatever their levels."""
    sizes = bound.schema.cardinalities
    return _request({each: tuple(range(int(sizes[each]))) for each in positions})


def _count(evidence: Evidence, request: TableRequest) -> int | None:
    counts = evidence.find(request)
    return None if counts is None else int(counts.sum())


def _describe(
    bound: BoundQuestion,
    evidence: Evidence,
    conditions: Conditions,
    counts: IntArray | None,
    chance: float,
) -> ConditionSupport:
    """Samples that meet some conditions."""
    words = describe_conditions(bound.schema, conditions)
    if not conditions:
        n_with = evidence.n_rows if counts is None else int(counts.sum())
        return ConditionSupport("", evidence.n_rows, True, n_with)
    n = _count(evidence, _request(conditions))
    if n is not None:
        return ConditionSupport(words, n, True, n if counts is None else int(counts.sum()))
    # counts of pairs say that there are at most as many as meet two of the conditions, or hold a target beside one
    some = [_request({p: conditions[p] for p in few}) for few in list_few(conditions)]
    most = min(_count(evidence, each) or 0 for each in some)
    others = [position for position in bound.targets if position not in conditions]
    with_targets = [
        _count(evidence, TableRequest((target,), _request({p: codes}).given)) or 0
        for p, codes in conditions.items()
        for target in others
    ]
    fewest = min(
        _count(evidence, _request_all(bound, pair)) or 0 for pair in combinations(conditions, 2)
    )
    return ConditionSupport(words, most, False, min([most, *with_targets]), chance * fewest)


def _request(conditions: Conditions) -> TableRequest:
    return TableRequest((), tuple(conditions.items()))


def _doubt(
    bound: BoundQuestion, evidence: Evidence, conditions: Conditions, found: ConditionSupport
) -> list[str]:
    """Sentences on conditions that no samples meet, or few."""
    if not conditions:
        return []
    for few in [*list_few(conditions), tuple(conditions)]:
        if _count(evidence, _request({p: conditions[p] for p in few})) == 0:
            words = describe_conditions(bound.schema, conditions, few)
            return [
                f"no row of the data has {words}: this answer is what the model makes of rows like it"
            ]
    names = ", ".join(bound.schema[position].name for position in bound.targets)
    if not found.with_targets:
        return [f"no row of the data that has {found.conditions} holds {names}"]
    most = "only" if found.is_exact else "at most"
    if found.samples < FEW:
        rows = "effective samples" if evidence.are_effective else "rows of the data"
        return [f"{most} {found.samples} {rows} have {found.conditions}"]
    if found.with_targets < FEW:
        return [
            f"of the rows of the data that have {found.conditions} only {found.with_targets} hold {names}"
        ]
    if found.expected is not None and found.expected < 1:
        return [
            f"counts of pairs do not say whether a row of the data has {found.conditions}, and the model expects "
            f"{found.expected:.2g}: this answer may be of nobody"
        ]
    return []


CLEARLY = 4.0
"""Standard errors of a share from which on the counts contradict the model."""
NOTICED = 0.02
"""Difference of probabilities below which nobody needs to know."""


def doubt_model(
    schema: Schema,
    targets: Sequence[int],
    conditions: Conditions,
    counts: IntArray,
    chances: FloatArray,
) -> list[str]:
    """Compare a model with the counts of what was asked, under all conditions together.

    Parameters
    ----------
    schema
        Variables.
    targets
        Index of the variable of each axis.
    conditions
        Conditions that the samples meet.
    counts
        int64: samples that meet the conditions, by combination of levels of the targets.
    chances
        float64 of the same shape: the PMF of the model given the conditions.

    Returns
    -------
    A sentence on the share that is furthest from its probability in standard errors, if these are more than
    ``CLEARLY`` and the difference is more than ``NOTICED``; none otherwise.
    """
    n_rows = max(int(counts.sum()), 1)
    shares = counts / n_rows
    # the spread of shares if the model is right, or if the counts are: the larger
    varied = np.maximum(shares * (1 - shares), chances * (1 - chances))
    spread = np.sqrt(np.maximum(varied, FLOOR) / n_rows)
    apart = np.abs(shares - chances)
    scores = np.where((apart > NOTICED) & (counts.sum() > 0), apart / np.maximum(spread, 1e-9), 0.0)
    cell = np.unravel_index(int(scores.argmax()), scores.shape)
    score = float(scores[cell])
    if score <= CLEARLY:
        return []
    levels = {position: (int(code),) for position, code in zip(targets, cell, strict=True)}
    words = describe_conditions(schema, levels)
    among = f" given {describe_conditions(schema, conditions)}" if conditions else ""
    return [
        f"the counts alone give {shares[cell]:.3g} for {words}{among}, and the model {chances[cell]:.3g}: {score:.0f} "
        "standard errors apart; the rank may be too small, or values are missing for a reason"
    ]


@dataclass(frozen=True)
class Homogeneity:
    """Pearson's test that shares are the same in all groups.

    Parameters
    ----------
    statistic, degrees, p_value
        Pearson's chi-squared, its degrees of freedom, and the chance of as much if they are.
    is_rough
        Whether more than a fifth of the cells have fewer than ``LEAST_EXPECTED`` expected samples.
    """

    statistic: float
    degrees: int
    p_value: float
    is_rough: bool

    def __str__(self) -> str:
        """The test in a line."""
        said = f"chi-squared {decimal(self.statistic)} ({self.degrees}), p = {decimal(self.p_value, 2)}"
        return f"{said}; roughly, for many cells are nearly empty" if self.is_rough else said


def find_homogeneity(counts: IntArray | FloatArray) -> Homogeneity | None:
    """Test whether the rows of a table have the same shares; None where there is nothing to compare.

    Parameters
    ----------
    counts
        Shape (n_groups, n_cells): samples, taken as independent of each other.

    References
    ----------
    Pearson (1900); Cochran (1954), "Some methods for strengthening the common chi-squared tests", Biometrics 10(4).
    """
    from scipy.special import chdtrc

    table = np.asarray(counts, np.float64)
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    if min(table.shape) < 2:
        return None
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    statistic = float(((table - expected) ** 2 / expected).sum())
    degrees = (table.shape[0] - 1) * (table.shape[1] - 1)
    is_rough = bool((expected < LEAST_EXPECTED).mean() > 0.2)
    return Homogeneity(statistic, degrees, float(chdtrc(degrees, statistic)), is_rough)
