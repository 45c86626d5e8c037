"""Value counts of a column, from which a variable is drafted, and bins of a continuous one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pmflib.core.arrays import FloatArray
from pmflib.core.errors import SchemaError
from pmflib.schema.drafting.level_order import read_interval
from pmflib.schema.variable import as_text, is_absent, read_number

MAX_TRACKED = 50_000
"""Distinct values whose counts are kept; a column with more is continuous, an identifier or free text."""


@dataclass
class ValueCounts:
    """Counts of the raw values of a column, up to a bounded number of distinct ones.

    Values of a column with more than ``MAX_TRACKED`` distinct ones are no longer all counted
    (``overflowed``): bin edges are then found from those that are counted, and ``uncounted`` is the number of values
    that are not. ``rows_before`` is the number of values that were seen before the first of these. Bytes that are not
    UTF-8 are no level: they are counted in ``undecodable``. ``categories`` are all levels, in order, where the data say
    them, and ``is_ordered`` says whether the data call the order one.
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
        """Values seen, given or not."""
        return self.counts.total() + self.uncounted

    @property
    def share_distinct(self) -> float:
        """Distinct texts per value given, in [0, 1], as far as they were all counted."""
        given = self.rows_before if self.overflowed else self.n_rows
        given -= self.counts.get("", 0)
        return min(1.0, (len(self.counts) - ("" in self.counts)) / given) if given > 0 else 0.0

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Count the values of a column; null counts as an empty text.

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
        """Count one text, unless ``most`` others (``MAX_TRACKED`` unless given) are counted already."""
        if text in self.counts or len(self.counts) < (MAX_TRACKED if most is None else most):
            self.counts[text] += count
            return
        if not self.overflowed:
            self.overflowed, self.rows_before = True, self.counts.total()
        self.uncounted += count

    def declare(self, categories: Sequence[object], *, is_ordered: bool) -> None:
        """Take the levels that the data say, also those that no value has; they are counted zero times."""
        texts = (as_text(value).strip() for value in categories if not is_absent(value))
        self.categories = tuple(dict.fromkeys(texts))
        self.is_ordered = is_ordered
        for text in self.categories:
            if len(self.counts) < MAX_TRACKED:
                self.counts.setdefault(text, 0)


MOST_ASTRAY = 0.01
"""Share of the values, among numbers, up to which words are strays."""
MOST_WORDS = 20
"""Different words that may be strays: more are codes of a column of codes."""
LEAST_AMONG = 3
"""Distinct numbers among which words may be strays."""


def find_strays(counts: Mapping[str, int]) -> dict[str, int]:
    """Words that are astray among the numbers of a column, with how often each was seen.

    Such a word is no number, nor an interval of them such as "10+", and all of them together are at most `MOST_ASTRAY`
    of the values; a column of names in which few numbers occur has none.
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
        Interior edges, increasing: bin i holds ``edges[i-1] <= x < edges[i]``.
    labels
        An interval per bin, ``len(edges) + 1`` texts, all distinct.
    means
        Mean of the numbers in each bin.
    alone
        Numbers that have a bin of their own among those that were seen.
    """

    edges: tuple[float, ...]
    labels: tuple[str, ...]
    means: tuple[float, ...]
    alone: tuple[float, ...]


def make_bins(points: FloatArray, weights: FloatArray, bins: int) -> Bins:
    """Split numbers into bins of about the same weight.

    A number that holds the share of a bin or more, such as zero among rare events, has a bin of its own: it reaches to
    the next whole number, or, where not all are whole, to the next number seen. The others are split at their
    quantiles, in as many bins as are left, at least two.

    Parameters
    ----------
    points
        float64 of shape (n_points,): distinct numbers, increasing, at least two.
    weights
        float64 of shape (n_points,): how often each was seen, positive.
    bins
        Number of bins, at least 2; there are fewer where there are fewer numbers, and some more where numbers have
        bins of their own.
    """
    heavy = np.flatnonzero(weights >= weights.sum() / bins)
    # of many heavy numbers, each is a bin, and the quantiles of the others add few
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
            # of whole numbers, no other one may fall into this bin later
            edges.add(float(points[index] + 1 if is_whole else points[index + 1]))
    # the smallest point is never an edge: its bin would be empty
    interior = np.array(sorted(edge for edge in edges if edge > points[0]))
    if not interior.size:
        interior = points[1:2]
    bin_of = np.searchsorted(interior, points, side="right")
    means = np.bincount(bin_of, weights * points) / np.bincount(bin_of, weights)
    bounds = [f"{edge:g}" for edge in interior]
    if len(set(bounds)) < len(bounds):
        bounds = [repr(edge) for edge in interior.tolist()]
    labels = [f"[{a}, {b})" for a, b in zip(["-inf", *bounds], [*bounds, "inf"], strict=True)]
    return Bins(
        tuple(interior.tolist()),
        tuple(labels),
        tuple(means.tolist()),
        tuple(points[heavy].tolist()),
    )
