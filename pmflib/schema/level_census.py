"""Counts of the raw values of a column, from which a variable is drafted."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa

from pmflib.errors import SchemaError
from pmflib.schema.variable import as_text

MAX_TRACKED = 50_000
"""Distinct values a census keeps; a column with more is continuous, an identifier or free text."""


@dataclass
class LevelCensus:
    """Counts of the raw values of a column, up to a bounded number of distinct ones.

    Values of a column with more than ``MAX_TRACKED`` distinct ones are no longer all counted
    (``overflowed``): bin edges are then drawn from those that are counted, and ``uncounted`` is the number of values
    that are not. ``rows_before`` is the number of values that were seen before the first of these. Bytes that are not
    UTF-8 are no level: they are counted in ``undecodable``.
    """

    counts: Counter[str] = field(default_factory=Counter)
    overflowed: bool = False
    uncounted: int = 0
    rows_before: int = 0
    undecodable: int = 0

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
