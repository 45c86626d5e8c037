"""Rows of an answer: labels for its numbers, in the order in which a person reads them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.questions.binding import BoundQuestion
from pmflib.questions.levels_in_order import find_quantile, order_levels
from pmflib.schema import Schema

QUANTITIES = {
    "P": "probability",
    "E": "expected value",
    "median": "cumulative probability",
    "quantile": "cumulative probability",
    "argmax": "probability",
    "H": "entropy, nats",
    "MI": "mutual information, nats",
    "TV": "total variation",
    "odds": "odds",
    "OR": "odds ratio",
}
"""What the numbers of each measure are."""


@dataclass(eq=False)
class AnswerRows:
    """Numbers and errors of shape (n_by, n_each), and what their labels are made of."""

    bound: BoundQuestion
    numbers: FloatArray
    errors: FloatArray | None
    combinations: IntArray | None
    cells: IntArray | None
    refits: FloatArray
    fold_numbers: FloatArray | None = None

    def list_rows(
        self,
    ) -> tuple[
        tuple[str, ...],
        list[tuple[str, ...]],
        str,
        FloatArray,
        FloatArray | None,
        Any,
        dict[str, list[Any]],
    ]:
        """Columns, labels, quantity, numbers, errors, value and further columns of an answer."""
        bound, name = self.bound, self.bound.question.measure
        schema = bound.schema
        by = list(_combine(schema, bound.by))
        more: dict[str, list[Any]] = {}
        if name in ("median", "quantile"):
            columns, rows, picks, more = self.find_quantiles(by)
        elif name == "argmax":
            assert self.combinations is not None
            columns = [schema[place].name for place in bound.groups[0]]
            rows = [_label(schema, bound.groups[0], codes) for codes in self.combinations.tolist()]
            picks = [(0, n) for n in range(len(rows))]
        elif name in ("P", "odds"):
            columns, rows, picks, more = self.find_cells(by)
        else:
            # a mean over the levels of the variables that are given has no row for each
            rows = [_label(schema, bound.by, codes) for codes in by] if name == "E" else [()]
            columns = [schema[place].name for place in bound.by] if name == "E" else []
            picks = [(n, 0) for n in range(len(rows))]
        kept = [
            n for n, pick in enumerate(picks) if not np.isnan(self.numbers[pick]) or name == "OR"
        ]
        picks, rows = [picks[n] for n in kept], [rows[n] for n in kept]
        more = {key: [each[n] for n in kept] for key, each in more.items()}
        numbers = np.array([self.numbers[pick] for pick in picks])
        errors = None
        if self.errors is not None:
            errors = np.array([self.errors[pick] for pick in picks])
            self.fold_numbers = np.array([self.refits[:, n, m] for n, m in picks]).T
        value = self.find_value(columns, rows, numbers)
        return tuple(columns), rows, QUANTITIES[name], numbers, errors, value, more

    def find_value(
        self, columns: Sequence[str], rows: Sequence[tuple[str, ...]], numbers: FloatArray
    ) -> Any:
        """Take the answer out of its table."""
        bound, name = self.bound, self.bound.question.measure
        if name == "argmax":
            return dict(zip(columns, rows[0], strict=True)) if rows else {}
        if name in ("median", "quantile"):
            found = [_read_level(bound, row[-1]) for row in rows]
            if not bound.by:
                return found[0]
            return {_key(row[:-1]): each for row, each in zip(rows, found, strict=True)}
        if not bound.by and not (name == "P" and bound.groups[0]):
            return float(numbers[0])
        if name in ("H", "MI", "TV"):
            return float(numbers[0])
        fixed = len(bound.events[0])
        return {
            _key(row[: len(row) - fixed]): float(number)
            for row, number in zip(rows, numbers, strict=True)
        }

    def find_cells(
        self, by: Sequence[tuple[int, ...]]
    ) -> tuple[list[str], list[tuple[str, ...]], list[tuple[int, int]], dict[str, list[Any]]]:
        """Rows of probabilities: the most probable first, within each combination of what is given."""
        bound, schema = self.bound, self.bound.schema
        free, events = bound.groups[0], bound.events[0]
        each = list(_combine(schema, free))
        said = [_say_levels(schema, place, codes) for place, codes in events.items()]
        columns = [schema[place].name for place in (*bound.by, *free, *events)]
        rows, picks, samples = [], [], []
        for n, codes in enumerate(by):
            for m in np.argsort(-self.numbers[n], kind="stable").tolist():
                labels = (*_label(schema, bound.by, codes), *_label(schema, free, each[m]), *said)
                rows.append(labels)
                picks.append((n, m))
                levels = dict(zip((*bound.by, *free), (*codes, *each[m]), strict=True))
                samples.append(self.count_samples(levels))
        more = {} if self.cells is None else {"samples": samples}
        return columns, rows, picks, more

    def count_samples(self, levels: Mapping[int, int]) -> int:
        """Samples that have some levels, and the events and conditions of the question."""
        if self.cells is None:
            return 0
        picks = []
        for place in self.bound.involved:
            codes = set(range(self.bound.schema[place].cardinality))
            for known in (*self.bound.events, *self.bound.given):
                codes &= set(known.get(place, codes))
            codes &= {levels[place]} if place in levels else codes
            picks.append(sorted(codes))
        return int(self.cells[np.ix_(*picks)].sum())

    def find_quantiles(
        self, by: Sequence[tuple[int, ...]]
    ) -> tuple[list[str], list[tuple[str, ...]], list[tuple[int, int]], dict[str, list[Any]]]:
        """Rows of quantiles, with the levels that two standard errors of the cumulative probability reach."""
        bound, schema = self.bound, self.bound.schema
        target = bound.groups[0][0]
        order = order_levels(schema[target])
        share = 0.5 if bound.question.share is None else bound.question.share
        columns = [schema[place].name for place in (*bound.by, target)]
        rows, picks = [], []
        limits: dict[str, list[Any]] = {"from": [], "to": []}
        for n, codes in enumerate(by):
            if np.isnan(self.numbers[n]).any():
                continue
            place = find_quantile(self.numbers[n], share)
            level = schema[target].levels[order[place]]
            rows.append((*_label(schema, bound.by, codes), level))
            picks.append((n, place))
            if self.errors is not None:
                spread = 2 * np.nan_to_num(self.errors[n])
                for limit, moved in (("from", spread), ("to", -spread)):
                    # the last level reaches every share, whatever the errors
                    cumulated = np.maximum.accumulate(
                        np.append(self.numbers[n, :-1] + moved[:-1], 1.0)
                    )
                    found = order[find_quantile(cumulated, share)]
                    limits[limit].append(schema[target].levels[found])
        return columns, rows, picks, limits if self.errors is not None else {}


def _combine(schema: Schema, places: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Combinations of the codes of some variables, the last fastest; one that is empty for none."""
    return itertools.product(*(range(schema[place].cardinality) for place in places))


def _label(schema: Schema, places: Sequence[int], codes: Sequence[int]) -> tuple[str, ...]:
    return tuple(schema[place].levels[code] for place, code in zip(places, codes, strict=True))


def _say_levels(schema: Schema, place: int, codes: Sequence[int]) -> str:
    return " or ".join(schema[place].levels[code] for code in codes)


def _key(labels: tuple[str, ...]) -> Any:
    return labels[0] if len(labels) == 1 else labels


def _read_level(bound: BoundQuestion, level: str) -> float | str:
    """Value of a level, or its label where it has none."""
    variable = bound.schema[bound.groups[0][0]]
    if variable.values is None:
        return level
    return variable.values[variable.levels.index(level)]
