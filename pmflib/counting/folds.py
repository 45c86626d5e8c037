"""Counts by fold, as an abelian group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from pmflib.core.arrays import IntArray, name_type
from pmflib.core.errors import SchemaError
from pmflib.core.weights import WeightSums
from pmflib.schema import Schema

DEFAULT_FOLDS = 16


@dataclass(frozen=True, eq=False)
class FoldedCounts:
    """How often levels occur together, by fold.

    Counts of two sets of samples add up to the counts of both, and subtract exactly.

    Parameters
    ----------
    schema
        The variables counted.
    tables
        int64 of shape (n_folds, n_levels, ...), with as many axes of levels as levels are counted together; float64
        where `to_samples` has made effective samples of weights.
    n_rows
        int64 of shape (n_folds,), samples counted.
    weights
        What their weights add up to, where they have any: tables are then sums of weights, in its unit.

    Raises
    ------
    SchemaError
        If the shapes do not agree.
    """

    schema: Schema
    tables: IntArray
    n_rows: IntArray
    weights: WeightSums | None = None

    ORDER: ClassVar[int]
    """How many levels are counted together."""

    def __post_init__(self) -> None:
        expected = self.n_rows.size, *(self.schema.n_levels,) * self.ORDER
        if self.tables.shape != expected:
            raise SchemaError(
                f"tables has shape {self.tables.shape}; the schema and n_rows ask for {expected}"
            )

    @classmethod
    def zero(cls, schema: Schema, n_folds: int = DEFAULT_FOLDS) -> Self:
        """Counts of no samples: the identity of the group."""
        tables = np.zeros((n_folds, *(schema.n_levels,) * cls.ORDER), np.int64)
        return cls(schema, tables, np.zeros(n_folds, np.int64))

    def __repr__(self) -> str:
        """What was counted, and how much."""
        worth = "" if self.weights is None else f" worth {self.n_effective:,.0f}"
        return (
            f"{type(self).__name__}({int(self.n_rows.sum()):,} samples{worth}, {self.schema.n_variables} variables, "
            f"{self.schema.n_levels} levels, {self.n_folds} folds)"
        )

    @property
    def n_folds(self) -> int:
        """Number of folds."""
        return len(self.n_rows)

    @property
    def n_effective(self) -> float:
        """Samples that those counted are worth: Kish's effective number of the weights, or their number."""
        if self.weights is None:
            return float(self.n_rows.sum())
        return self.weights.n_effective

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.tables.nbytes

    def __add__(self, other: Self) -> Self:
        """Counts of both sets of samples.

        Raises
        ------
        SchemaError
            If schemas or numbers of folds differ, or one of both has weights.
        PmfError
            If the units of weights differ, or their sum could not be held.
        """
        self._check_same(other)
        weights = self._add_weights(other)
        n_rows = self.n_rows + other.n_rows
        return type(self)(self.schema, self.tables + other.tables, n_rows, weights)

    def __radd__(self, other: object) -> Self:
        """Counts added to 0, so that ``sum`` adds up a list of them."""
        if other != 0:
            self._check_same(other)
        return self

    def __sub__(self, other: Self) -> Self:
        """Counts without the samples of ``other``.

        Raises
        ------
        SchemaError
            If schemas or numbers of folds differ, one of both has weights, or samples would be taken away that were
            never counted.
        """
        self._check_same(other)
        tables = self.tables - other.tables
        if tables.min(initial=0) < 0 or (self.n_rows < other.n_rows).any():
            raise SchemaError(
                "the counts to subtract hold samples that these counts never held; subtract parts of the same total"
            )
        return type(self)(
            self.schema, tables, self.n_rows - other.n_rows, self._add_weights(other, -1)
        )

    def select_folds(self, folds: Iterable[int]) -> Self:
        """Counts of some folds alone.

        Raises
        ------
        SchemaError
            If a fold is outside [0, n_folds), or named twice.
        """
        chosen = check_folds(folds, self.n_folds)
        weights = None if self.weights is None else self.weights.select(chosen)
        return type(self)(self.schema, self.tables[chosen], self.n_rows[chosen], weights)

    def drop_folds(self, folds: Iterable[int]) -> Self:
        """Counts of all folds but some.

        Raises
        ------
        SchemaError
            If a fold is outside [0, n_folds), or named twice.
        """
        dropped = set(check_folds(folds, self.n_folds))
        return self.select_folds(fold for fold in range(self.n_folds) if fold not in dropped)

    def count_levels(self) -> IntArray:
        """Count the samples of all folds that hold each level: int64 of shape (n_levels,)."""
        diagonal: Any = slice(None), *(np.arange(self.schema.n_levels),) * self.ORDER
        total: IntArray = self.tables[diagonal].sum(axis=0)
        return total

    def to_samples(self) -> Self:
        """Counts in samples, which is what fits and answers take: of weighted ones in effective samples.

        Those without weights are returned as they are. Of others tables are multiplied by the effective number of
        samples over the sum of the weights, float64; equal weights leave int64, the counts without weights bit for bit.
        """
        if self.weights is None:
            return self
        total, n_rows = sum(self.weights.totals), int(self.n_rows.sum())
        tables = count_in_samples([self.tables], n_rows, self.weights)[0][0]
        if self.weights.are_equal(n_rows):
            return replace(self, tables=tables, weights=None)
        scale = self.n_effective / total
        # folds add up to the whole, rounded
        ends = np.rint(np.cumsum(np.array(self.weights.totals, np.float64)) * scale)
        worth = np.diff(ends, prepend=0.0).astype(np.int64)
        return replace(self, tables=tables, n_rows=worth, weights=None)

    def _add_weights(self, other: Self, sign: int = 1) -> WeightSums | None:
        if self.weights is None or other.weights is None:
            if self.weights is not other.weights:
                raise SchemaError(
                    "counts of samples with weights cannot join counts of samples without; count both with weights, 1 "
                    "each where there are none"
                )
            return None
        return self.weights.add(other.weights, sign)

    def _check_same(self, other: object) -> None:
        if not isinstance(other, type(self)):
            raise SchemaError(
                f"{name_type(other)} cannot join {type(self).__name__}; count its samples first"
            )
        if self.schema.digest != other.schema.digest:
            raise SchemaError(
                f"counts of schema {other.schema.digest[:12]} cannot join counts of schema "
                f"{self.schema.digest[:12]}; count both under one schema"
            )
        if self.n_folds != other.n_folds:
            raise SchemaError(
                f"counts of {other.n_folds} folds cannot join counts of {self.n_folds} folds; count both with the same "
                "n_folds"
            )


def count_in_samples(
    tables: Sequence[IntArray], n_rows: int, weights: WeightSums | None
) -> tuple[list[IntArray], int]:
    """Counts in samples, which is what fits and answers take: of weighted ones in effective samples.

    Parameters
    ----------
    tables
        Counts, or sums of weights in units.
    n_rows
        Samples counted.
    weights
        What their weights add up to; None where they have none, and tables are as they were.

    Returns
    -------
    Tables times the effective number of samples over the sum of the weights, float64, and that number, rounded; equal
    weights leave the counts without any, int64, bit for bit, and the number of samples.
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
    """List the folds that are asked for, None being all; refuse a fold that is not there, or named twice."""
    if folds is None:
        return list(range(n_folds))
    chosen = list(folds)
    if len(set(chosen)) < len(chosen):
        raise SchemaError(f"folds {chosen} has a fold twice; its samples would be counted twice")
    if outside := [fold for fold in chosen if not 0 <= fold < n_folds]:
        raise SchemaError(f"folds {outside} are outside [0, {n_folds})")
    return chosen


def read_schema(cardinalities: IntArray | Sequence[int] | Schema) -> Schema:
    """Schema of what is to be counted, given as such or as the number of levels of each variable."""
    if isinstance(cardinalities, Schema):
        return cardinalities
    if isinstance(cardinalities, np.ndarray) and cardinalities.ndim == 2:
        raise SchemaError(
            f"cardinalities is an array of shape {cardinalities.shape}: the samples come first, and then the schema"
        )
    return Schema.from_cardinalities(cardinalities)


def infer_schema(samples: object) -> Schema:
    """Schema of samples in memory: of a table by `Schema.infer`, of codes with a level for each up to the largest.

    Parameters
    ----------
    samples
        A table; or integers of shape (n_rows, n_variables), -1 missing, at least one row.

    Raises
    ------
    SchemaError
        If an array has no codes, or no column of a table can be a variable.
    """
    if not isinstance(samples, np.ndarray):
        return Schema.infer(samples)
    if samples.ndim != 2 or not samples.size or not np.issubdtype(samples.dtype, np.integer):
        raise SchemaError(
            f"codes is an array of {samples.dtype} of shape {samples.shape}; codes are integers of shape "
            "(n_rows, n_variables), at least one row, -1 where missing"
        )
    # in 64 bits, for 127 + 1 is -128 in 8
    return Schema.from_cardinalities(np.maximum(samples.max(axis=0).astype(np.int64) + 1, 1))
