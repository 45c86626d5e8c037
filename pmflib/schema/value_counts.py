"""Counts of the values of a column, stray words among numbers, and bins of continuous columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import FloatArray
from pmflib.base.errors import SchemaError
from pmflib.schema.intervals import read_interval
from pmflib.schema.variable import as_text, is_absent, read_number

MAX_TRACKED = 50_000
"""Largest number of distinct values that are counted; columns with more are continuous, identifiers or free text."""


@dataclass
class ValueCounts:
    """Counts of the raw values of a column, for a bounded number of distinct values.

    A column with more than ``MAX_TRACKED`` distinct values is ``overflowed``: later new values are only added to
    ``uncounted``, and bin edges are found from the others. ``rows_before`` is the number of values before the first
    uncounted one. Values that are not UTF-8 are counted in ``undecodable``. ``categories`` are the levels that the data
    declare, in order, and ``is_ordered`` is whether the data declare this order as meaningful.
    """

    counts: Counter[str] = field(default_factory=Counter)
    overflowed: bool = False
    uncounted: int = 0
    rows_before: int = 0
    undecodable: int = 0
    categories: tuple[str, ...] = ()
    is_ordered: bool = False

    @property
    def n_rows(self) -> int:
        """Number of values, including missing ones."""
        return self.counts.total() + self.uncounted

    @property
    def share_distinct(self) -> float:
        """Number of distinct texts per nonempty value, in [0, 1], before any overflow."""
        given = self.rows_before if self.overflowed else self.n_rows
        given -= self.counts.get("", 0)
        return min(1.0, (len(self.counts) - ("" in self.counts)) / given) if given > 0 else 0.0

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Count the values of a column, null as an empty text.

        Raises
        ------
        SchemaError
            If the column is nested.
        """
        if pa.types.is_nested(column.type):
            raise SchemaError(
                f"a column holds {column.type}; a value is a text, a number or a boolean"
            )
        counts = self.counts
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
            if type(value) is str:
                text = value.strip()
            else:
                absent = value is None or (isinstance(value, float) and math.isnan(value))
                text = "" if absent else as_text(value).strip()
            if text in counts:
                # the common case of a column with few levels
                counts[text] += count
            elif len(counts) < MAX_TRACKED:
                counts[text] = count
            else:
                self.count(text, count)

    def count(self, text: str, count: int, most: int | None = None) -> None:
        """Count a text, unless ``most`` others (by default ``MAX_TRACKED``) are counted already."""
        if text in self.counts or len(self.counts) < (MAX_TRACKED if most is None else most):
            self.counts[text] += count
            return
        if not self.overflowed:
            self.overflowed, self.rows_before = True, self.counts.total()
        self.uncounted += count

    def declare(self, categories: Sequence[object], *, is_ordered: bool) -> None:
        """Declare the levels of the column, including unused ones, whose count is zero."""
        texts = (as_text(value).strip() for value in categories if not is_absent(value))
        self.categories = tuple(dict.fromkeys(texts))
        self.is_ordered = is_ordered
        for text in self.categories:
            if len(self.counts) < MAX_TRACKED:
                self.counts.setdefault(text, 0)


MOST_ASTRAY = 0.01
"""Largest share of stray words among numbers."""
MOST_WORDS = 20
"""Largest number of distinct stray words: columns with more contain codes."""
LEAST_AMONG = 3
"""Least number of distinct numbers in a column with stray words."""


def find_strays(counts: Mapping[str, int]) -> dict[str, int]:
    """Find stray words among the numbers of a column, with their counts.

    Strays are neither numbers nor intervals such as "10+", and together make up at most `MOST_ASTRAY` of the values.
    Columns of names with a few numbers have none.
    """
    words = {text: n for text, n in counts.items() if read_number(text) is None}
    n_words, total = sum(words.values()), sum(counts.values())
    if not 0 < len(words) <= MOST_WORDS or len(counts) - len(words) < LEAST_AMONG:
        return {}
    return {} if n_words > MOST_ASTRAY * total or any(map(read_interval, words)) else words


@dataclass(frozen=True)
class Bins:
    """Bins of numbers.

    Parameters
    ----------
    edges
        Interior edges, increasing: bin i is ``edges[i-1] <= x < edges[i]``.
    labels
        Distinct labels of the ``len(edges) + 1`` intervals.
    means
        Mean of the numbers in each bin.
    alone
        Numbers with a bin of their own.
    """

    edges: tuple[float, ...]
    labels: tuple[str, ...]
    means: tuple[float, ...]
    alone: tuple[float, ...]


def make_bins(points: FloatArray, weights: FloatArray, bins: int) -> Bins:
    """Split numbers into bins of about equal weight.

    A number with at least the share of a bin, such as zero in counts of rare events, gets its own bin, which extends to
    the next integer or, if not all numbers are integers, to the next number. The others are split at their quantiles
    into the remaining bins, at least two.

    Parameters
    ----------
    points
        At least two distinct numbers, increasing, float64 of shape (n_points,).
    weights
        Positive counts of the numbers, float64 of shape (n_points,).
    bins
        Number of bins, at least 2. There are fewer bins if there are fewer numbers, and some more if numbers have bins
        of their own.
    """
    heavy = np.flatnonzero(weights >= weights.sum() / bins)
    # with many heavy numbers, the others get few bins
    n_bins = max(2, bins - heavy.size)
    light = weights.copy()
    light[heavy] = 0.0
    is_whole = bool(np.all(points == np.round(points)))
    edges: set[float] = set()
    if light.sum() > 0:
        share = np.cumsum(light) / light.sum()
        targets = np.arange(1, n_bins) / n_bins
        # an edge is the first point past its quantile
        positions = np.searchsorted(share, targets, side="right")
        edges = set(points[np.minimum(positions, points.size - 1)].tolist())
    for index in heavy.tolist():
        edges.add(float(points[index]))
        if index + 1 < points.size:
            # no other integer may fall into this bin later
            edges.add(float(points[index] + 1 if is_whole else points[index + 1]))
    # the smallest point is never an edge: its bin would be empty
    interior = np.array(sorted(edge for edge in edges if edge > points[0]))
    if not interior.size:
        interior = points[1:2]
    return Bins(*describe_bins(points, weights, interior), tuple(points[heavy].tolist()))


def describe_bins(
    points: FloatArray, weights: FloatArray, edges: FloatArray
) -> tuple[tuple[float, ...], tuple[str, ...], tuple[float, ...]]:
    """Return edges, labels and means of the bins of numbers, as in `Bins`.

    Parameters
    ----------
    points, weights
        As for `make_bins`.
    edges
        Interior edges, increasing; there are numbers in every bin.
    """
    bin_of = np.searchsorted(edges, points, side="right")
    means = np.bincount(bin_of, weights * points) / np.bincount(bin_of, weights)
    bounds = [f"{edge:g}" for edge in edges]
    if len(set(bounds)) < len(bounds):
        bounds = [repr(edge) for edge in edges.tolist()]
    labels = [f"[{a}, {b})" for a, b in zip(["-inf", *bounds], [*bounds, "inf"], strict=True)]
    return tuple(edges.tolist()), tuple(labels), tuple(means.tolist())
