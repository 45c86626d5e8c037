"""Counts by fold; an abelian group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.base.constraints import (
    OneOf,
    check,
    check_distinct,
    check_schemas,
    check_shapes,
    check_type,
)
from pmflib.base.errors import SchemaError
from pmflib.base.weights import WeightSums
from pmflib.schema import Schema

DEFAULT_FOLDS = 16


@dataclass(frozen=True, eq=False)
class FoldedCounts:
    """Co-occurrence counts of levels, by fold.

    Counts of two sets of samples can be added and subtracted exactly.

    Parameters
    ----------
    schema
        Variables of the counts.
    tables
        int64 of shape (n_folds, n_levels, ...), with one axis of levels for each level of a combination; float64 if
        weights were converted to effective samples by `to_samples`.
    n_rows
        int64 of shape (n_folds,), number of samples.
    weights
        Total weight of the samples, if they are weighted; tables are then sums of weights in its unit.

    Raises
    ------
    SchemaError
        If the shapes do not match.
    """

    schema: Schema
    tables: IntArray
    n_rows: IntArray
    weights: WeightSums | None = None

    ORDER: ClassVar[int]
    """Number of levels in a combination."""

    def __post_init__(self) -> None:
        expected = self.n_rows.size, *(self.schema.n_levels,) * self.ORDER
        check_shapes("as schema and n_rows require", tables=(self.tables, expected))

    @classmethod
    def zero(cls, schema: Schema, n_folds: int = DEFAULT_FOLDS) -> Self:
        """Return counts of no samples: the identity of the group."""
        tables = np.zeros((n_folds, *(schema.n_levels,) * cls.ORDER), np.int64)
        return cls(schema, tables, np.zeros(n_folds, np.int64))

    def __repr__(self) -> str:
        """Describe what was counted, and how much."""
        worth = "" if self.weights is None else f" worth {self.n_effective:,.0f}"
        return (
            f"{type(self).__name__}({int(self.n_rows.sum()):,} samples{worth}, {self.schema.n_variables} variables, "
            f"{self.schema.n_levels} levels, {self.n_folds} folds)"
        )

    @property
    def n_folds(self) -> int:
        """Return the number of folds."""
        return len(self.n_rows)

    @property
    def n_effective(self) -> float:
        """Return the effective number of samples: Kish's formula for weighted samples, otherwise their number."""
        if self.weights is None:
            return float(self.n_rows.sum())
        return self.weights.n_effective

    @property
    def nbytes(self) -> int:
        """Return the size in bytes."""
        return self.tables.nbytes

    def __add__(self, other: Self) -> Self:
        """Add the counts of two sets of samples.

        Raises
        ------
        SchemaError
            If schemas or numbers of folds differ, or only one of them is weighted.
        PmfError
            If the units of weights differ, or their sum would overflow.
        """
        self._check_same(other)
        weights = self._add_weights(other)
        n_rows = self.n_rows + other.n_rows
        return type(self)(self.schema, self.tables + other.tables, n_rows, weights)

    def __radd__(self, other: object) -> Self:
        """Add counts to 0, so that ``sum`` works on a list of counts."""
        if other != 0:
            self._check_same(other)
        return self

    def __sub__(self, other: Self) -> Self:
        """Subtract the counts of ``other``.

        Raises
        ------
        SchemaError
            If schemas or numbers of folds differ, only one of them is weighted, or a count would become negative.
        """
        self._check_same(other)
        tables = self.tables - other.tables
        if tables.min(initial=0) < 0 or (self.n_rows < other.n_rows).any():
            raise SchemaError(
                "the counts to subtract include samples that are not in these counts; subtract parts of the same total"
            )
        return type(self)(
            self.schema, tables, self.n_rows - other.n_rows, self._add_weights(other, -1)
        )

    def select_folds(self, folds: Iterable[int]) -> Self:
        """Return the counts of some folds.

        Raises
        ------
        SchemaError
            If a fold is outside [0, n_folds) or repeated.
        """
        chosen = check_folds(folds, self.n_folds)
        weights = None if self.weights is None else self.weights.select(chosen)
        return type(self)(self.schema, self.tables[chosen], self.n_rows[chosen], weights)

    def drop_folds(self, folds: Iterable[int]) -> Self:
        """Return the counts of all folds except some.

        Raises
        ------
        SchemaError
            If a fold is outside [0, n_folds) or repeated.
        """
        dropped = set(check_folds(folds, self.n_folds))
        return self.select_folds(fold for fold in range(self.n_folds) if fold not in dropped)

    def count_levels(self) -> IntArray:
        """Count the samples with each level over all folds: int64 of shape (n_levels,)."""
        diagonal: Any = slice(None), *(np.arange(self.schema.n_levels),) * self.ORDER
        total: IntArray = self.tables[diagonal].sum(axis=0)
        return total

    def to_samples(self) -> Self:
        """Convert weighted counts to effective samples, as used by fits and answers.

        Unweighted counts are returned unchanged. Weighted tables are multiplied by the effective number of samples over
        the total weight, float64. Equal weights give int64 tables identical to the unweighted counts.
        """
        if self.weights is None:
            return self
        total, n_rows = sum(self.weights.totals), int(self.n_rows.sum())
        tables = count_in_samples([self.tables], n_rows, self.weights)[0][0]
        if self.weights.are_equal(n_rows):
            return replace(self, tables=tables, weights=None)
        scale = self.n_effective / total
        # folds must sum to the rounded total
        ends = np.rint(np.cumsum(np.array(self.weights.totals, np.float64)) * scale)
        worth = np.diff(ends, prepend=0.0).astype(np.int64)
        return replace(self, tables=tables, n_rows=worth, weights=None)

    def _add_weights(self, other: Self, sign: int = 1) -> WeightSums | None:
        if self.weights is None or other.weights is None:
            if self.weights is not other.weights:
                raise SchemaError(
                    "counts of samples with weights cannot be combined with unweighted counts; count both with "
                    "weights, 1 for each unweighted sample"
                )
            return None
        return self.weights.add(other.weights, sign)

    def _check_same(self, other: Any) -> None:
        check_type(type(self), "count its samples first", SchemaError, other=other)
        check_schemas(counts=self, other=other)
        check(
            OneOf((self.n_folds,), "that of the other counts"), SchemaError, n_folds=other.n_folds
        )


def count_in_samples(
    tables: Sequence[IntArray], n_rows: int, weights: WeightSums | None
) -> tuple[list[IntArray], int]:
    """Convert counts to effective samples, as used by fits and answers.

    Parameters
    ----------
    tables
        Counts, or sums of weights in units.
    n_rows
        Number of samples.
    weights
        Total weight of the samples; None if they are unweighted, and tables are unchanged.

    Returns
    -------
    Tables times the effective number of samples over the total weight, float64, and that number, rounded. Equal weights
    give the unweighted counts, int64, and the number of samples.
    """
    if weights is None:
        return list(tables), n_rows
    total = sum(weights.totals)
    if weights.are_equal(n_rows):
        each = max(total // max(n_rows, 1), 1)
        return [table // each for table in tables], n_rows
    scale: Any = weights.n_effective / total
    return [table * scale for table in tables], round(weights.n_effective)


def check_folds(folds: Iterable[int] | None, n_folds: int) -> list[int]:
    """Validate folds and return them as a list; None selects all."""
    if folds is None:
        return list(range(n_folds))
    chosen = list(folds)
    check_distinct(chosen, "folds are")
    if outside := [fold for fold in chosen if not 0 <= fold < n_folds]:
        raise SchemaError(f"folds {outside} are outside [0, {n_folds})")
    return chosen


def read_schema(cardinalities: IntArray | Sequence[int] | Schema) -> Schema:
    """Return a schema, given as such or as the number of levels of each variable."""
    if isinstance(cardinalities, Schema):
        return cardinalities
    if isinstance(cardinalities, np.ndarray) and cardinalities.ndim == 2:
        raise SchemaError(
            f"cardinalities is an array of shape {cardinalities.shape}: pass the samples first, then the schema"
        )
    return Schema.from_cardinalities(cardinalities)
