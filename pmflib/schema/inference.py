"""Proposing a variable from the values seen in a column."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pmflib.errors import SchemaError
from pmflib.schema.variable import DEFAULT_MISSING, Variable, as_text, read_number

MAX_TRACKED = 50_000
"""Distinct values a census keeps; a column with more is either continuous or no categorical variable."""

ONE_LEVEL = "only one value was seen: add the levels that others may give, or take the variable out"
"""Note on a variable of which a single value was seen."""


@dataclass
class LevelCensus:
    """Counts of the raw values of a column, up to a bounded number of distinct ones.

    Values of a column with more than ``MAX_TRACKED`` distinct ones are no longer all counted
    (``overflowed``): bin edges are then drawn from those that are counted.
    """

    counts: Counter[str] = field(default_factory=Counter)
    overflowed: bool = False
    undecodable: int = 0

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Count the values of a column; null counts as an empty text.

        Bytes that are not UTF-8 are no level: they are counted in ``undecodable``.

        Raises
        ------
        SchemaError
            If the column is nested.
        """
        if pa.types.is_nested(column.type):
            raise SchemaError(
                f"a column holds {column.type}; a value is a text, a number or a boolean"
            )
        seen = column.value_counts()
        for value, count in zip(
            seen.field("values").to_pylist(), seen.field("counts").to_pylist(), strict=True
        ):
            if isinstance(value, bytes):
                try:
                    value = value.decode("utf-8")
                except UnicodeDecodeError:
                    self.undecodable += count
                    continue
            absent = value is None or (isinstance(value, float) and math.isnan(value))
            text = "" if absent else as_text(value).strip()
            if text in self.counts or len(self.counts) < MAX_TRACKED:
                self.counts[text] += count
            else:
                self.overflowed = True


def propose_variable(
    name: str,
    census: LevelCensus,
    *,
    missing: Sequence[str] = DEFAULT_MISSING,
    max_levels: int = 32,
    bins: int = 8,
) -> tuple[Variable | None, str]:
    """Draft a variable, with a note on what a user should check.

    Parameters
    ----------
    name
        Name of the variable.
    census
        Values seen.
    missing
        Texts that mean "not given".
    max_levels
        A numeric column with more distinct values is cut into bins; a text column with more is no variable.
    bins
        Number of bins of a continuous column; edges are quantiles of what was seen.

    Returns
    -------
    The variable, or None where the column cannot be one, and a note for the reviewer, which may be empty.
    """
    codes = {text.strip() for text in missing}
    seen = {text: count for text, count in census.counts.items() if text not in codes}
    if not seen:
        return None, "left out: no value was seen"
    numbers = {text: number for text in seen if (number := read_number(text)) is not None}
    if len(numbers) == len(seen):
        return _propose_numeric(
            name, numbers, seen, tuple(missing), max_levels, bins, census.overflowed
        )
    if len(seen) > max_levels or census.overflowed:
        at_least = "at least " if census.overflowed else ""
        return None, f"left out: {at_least}{len(seen)} distinct texts; an identifier or free text?"
    note = "order of the levels is alphabetical; put them in order and give values if they have one"
    if numbers:
        note += (
            f"; some levels read as numbers ({sorted(numbers)[0]!r}): a missing code among them?"
        )
    if len(seen) == 1:
        note = ONE_LEVEL
    return Variable(name, tuple(sorted(seen)), missing=tuple(missing)), note


def _propose_numeric(
    name: str,
    numbers: dict[str, float],
    seen: dict[str, int],
    missing: tuple[str, ...],
    max_levels: int,
    bins: int,
    overflowed: bool,
) -> tuple[Variable, str]:
    """Levels in numeric order, or bins at the quantiles where there are too many."""
    distinct = sorted(
        {number: text for text, number in sorted(numbers.items(), reverse=True)}.items()
    )
    if len(distinct) <= max_levels and not overflowed:
        values = tuple(number for number, _ in distinct)
        note = ONE_LEVEL if len(values) == 1 else ""
        return Variable(name, tuple(text for _, text in distinct), values, missing=missing), note
    order = sorted(numbers, key=numbers.__getitem__)
    points = np.array([numbers[text] for text in order])
    weights = np.array([seen[text] for text in order], np.float64)
    share = np.cumsum(weights) / weights.sum()
    # an edge is the first point past its quantile; the smallest point is never an edge: its bin would be empty
    edges = np.unique(points[np.searchsorted(share, np.arange(1, bins) / bins, side="right")])
    edges = edges[edges > points[0]]
    if not edges.size:
        # the smallest value outweighs all quantiles, as zero does among rare events: it gets a bin of its own
        edges = np.unique(points)[1:2]
    place = np.searchsorted(edges, points, side="right")
    means = np.bincount(place, weights * points) / np.bincount(place, weights)
    bounds = [f"{edge:g}" for edge in edges]
    if len(set(bounds)) < len(bounds):
        bounds = [repr(edge) for edge in edges.tolist()]
    levels = tuple(f"[{a}, {b})" for a, b in zip(["-inf", *bounds], [*bounds, "inf"], strict=True))
    variable = Variable(name, levels, tuple(means.tolist()), tuple(edges.tolist()), missing)
    note = f"continuous: cut into {len(levels)} bins at the quantiles; values are the bins' means"
    if set(seen.values()) == {1} and all(map(float.is_integer, numbers.values())):
        note += "; all differ: an identifier? name it as source.sample, or take it out"
    return variable, note
