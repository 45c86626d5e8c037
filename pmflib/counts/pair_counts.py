"""Co-occurrence counts of pairs, in memory and on disk, from a table or in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pmflib.base.arrays import IntArray, check_row_order, name_type, sum_pairs
from pmflib.base.blocks import DenseBlock
from pmflib.base.codes import Codes
from pmflib.base.constraints import at_least, check
from pmflib.base.display.progress import working
from pmflib.base.display.summary import Summarised, Summary, format_count
from pmflib.base.errors import PmfError, SchemaError
from pmflib.base.hashing import assign_folds
from pmflib.base.hooks import find_offers
from pmflib.base.weights import Weights, WeightSums, read_weights
from pmflib.counts.block_counting import add_block, add_weighted_rows, choose_fold_planes
from pmflib.counts.folds import (
    DEFAULT_FOLDS,
    FoldedCounts,
    check_folds,
    count_in_samples,
    read_schema,
)
from pmflib.counts.zarr_tables import KIND, CountsWriter, StoredTables
from pmflib.schema import Schema
from pmflib.store.array_groups import read_arrays

if TYPE_CHECKING:
    from pmflib.base.display.drawing import Axes


def count_batches(
    batches: Iterator[object], schema: Schema, tables: IntArray, n_rows: IntArray
) -> None:
    """Add the counts of batches to tables; rows are assigned to folds by their overall row number.

    Parameters
    ----------
    batches
        Codes or tables that the schema can encode; iterated once.
    schema
        The variables.
    tables
        int64 of shape (n_folds, n_levels, n_levels), updated.
    n_rows
        int64 of shape (n_folds,), updated.

    Raises
    ------
    SchemaError
        If a batch does not match the schema; the batches before it have then been counted.
    """
    first = 0
    with working("count_pairs") as report:
        for number, batch in enumerate(batches, 1):
            codes = schema.encode(batch)
            folds = assign_folds(np.arange(first, first + len(codes)), len(n_rows))
            for fold in range(len(n_rows)):
                mine = codes[folds == fold]
                add_block(DenseBlock(mine), schema.offsets, tables[fold])
                n_rows[fold] += len(mine)
            first += len(codes)
            if report is not None:
                # the number of rows is not known in advance
                report(number, number + 1, f"{first:,} rows")


@dataclass(frozen=True, eq=False, repr=False)
class PairCounts(FoldedCounts, Summarised):
    """Co-occurrence counts of pairs of levels, by fold.

    Parameters
    ----------
    schema
        Variables of the counts.
    tables
        int64 of shape (n_folds, n_levels, n_levels), upper triangles: entry (a, b), a <= b, is the number of samples
        with both levels a and b; the diagonal blocks have single counts on their diagonal.
    n_rows
        int64 of shape (n_folds,), number of samples.
    weights
        Total weight of the samples, if they are weighted: an entry is then the sum of the weights of the samples.

    Raises
    ------
    SchemaError
        If the shapes do not match.

    References
    ----------
    Ibrahim, Fu (2021), "Recovering joint probability of discrete random variables from pairwise marginals".
    """

    ORDER = 2

    def summary(self) -> Summary:
        """Summarise rows, folds and the least supported pairs: text in a terminal, HTML in a notebook."""
        from pmflib.counts.figures import summarise_counts

        counts = self.to_samples()
        tables = np.rint(counts.tables).astype(np.int64)
        seen = np.rint(counts.count_levels()).astype(np.int64)
        found = summarise_counts(self.schema, tables, counts.n_rows, seen)
        if self.weights is None:
            return found
        n_all, worth = format_count(int(self.n_rows.sum())), format_count(round(self.n_effective))
        fact = ("weights", f"{n_all} samples are worth {worth}, the unit of all counts below")
        return replace(found, facts=(fact, *found.facts))

    def to_dense(self) -> IntArray:
        """Sum over folds: int64 of shape (n_levels, n_levels), symmetric, with single counts on the diagonal."""
        upper: IntArray = self.tables.sum(axis=0)
        return upper + np.triu(upper, 1).T

    def plot_support(self, **options: Any) -> Axes:
        """Plot the number of samples for each pair; see `pmflib.counts.figures.plot_support`."""
        from pmflib.counts.figures import plot_support

        support = sum_pairs(self.to_samples().to_dense(), self.schema.offsets)
        return plot_support(np.rint(support).astype(np.int64), **options)

    def save(self, path: str | Path) -> None:
        """Save the counts, their supports and the schema as a Zarr group; the folder must not exist."""
        writer = CountsWriter(Path(path), self.schema, self.n_folds, self.weights)
        for fold in range(self.n_folds):
            writer.write(fold, self.tables[fold], int(self.n_rows[fold]))
        writer.close()

    def export(self, path: str | Path, minimum: int = 1, *, seed: int | None = None) -> str:
        """Write the counts to a file without rows; others add them to theirs with `pmflib.surveys.read_counts`.

        The file is Parquet: a row for every cell above 0 with the names of its levels, and the schema, the numbers of
        rows and a digest as metadata.

        Parameters
        ----------
        path
            The file, replaced if it exists.
        minimum
            Smallest number of rows that a cell may show. Above 1, counts are rounded at random to multiples of it: the
            expected value of a cell is its exact count. Its variance is at most a quarter of the minimum squared for a
            level, and 1.25 times the minimum squared for a pair. The number of rows stays exact.
        seed
            Secret of the site for the rounding, at least 0: equal counts and seeds give equal files. None draws one; of
            several files of the same counts with different seeds, the mean would tell the exact counts.

        Returns
        -------
        SHA-256 digest of the content. Tell it to the recipient by another way than the file: who changes the file can
        also change the digest in it.

        Raises
        ------
        PmfError
            If the minimum is below 1, or above 1 for weighted counts or more than the number of rows; or if the seed is
            negative.

        Notes
        -----
        Rounding hides numbers of rows, not what all rows with a rare level have in common: merge rare levels before
        counting.
        """
        write = find_offers("count_files").get("export")
        if write is None:
            raise PmfError(
                "no feature of this installation writes counts for others; PairCounts.save keeps them"
            )
        digest: str = write(self, Path(path), minimum=minimum, seed=seed)
        return digest

    @classmethod
    def load(cls, path: str | Path) -> PairCounts:
        """Load counts written by `save` or a pipeline; their variables are those whose pairs were counted.

        Raises
        ------
        StoreError
            If the group is missing, damaged, or of another kind, or if counts that these are differences to are missing
            from the store.
        """
        stored = StoredTables(Path(path))
        loaded = cls.zero(stored.table_schema, stored.n_folds)
        for fold in range(stored.n_folds):
            loaded.tables[fold] = stored.read(fold)
        loaded.n_rows[:] = stored.n_rows
        return replace(loaded, weights=stored.weights)

    @classmethod
    def load_total(cls, path: str | Path, *, folds: Iterable[int] | None = None) -> PairCounts:
        """Load the sum over folds, as counts with a single fold, in the memory of two tables.

        Parameters
        ----------
        path
            Path written by `save` or a pipeline.
        folds
            Folds to sum, such as the training folds; None sums all.

        Raises
        ------
        StoreError
            As `load` does.
        SchemaError
            If a fold does not exist or is repeated.
        """
        return cls.add_up(StoredTables(Path(path)), folds)

    @classmethod
    def add_up(cls, stored: StoredTables, folds: Iterable[int] | None = None) -> PairCounts:
        """Apply `load_total` to tables that are already open."""
        chosen = check_folds(folds, stored.n_folds)
        total = cls.zero(stored.table_schema, 1)
        total.tables[0] = stored.add_up(chosen)
        total.n_rows[0] = stored.n_rows[chosen].sum()
        if stored.weights is None:
            return total
        return replace(total, weights=stored.weights.select(chosen).merge())


def load_singles(path: str | Path, *, folds: Iterable[int] | None = None) -> IntArray:
    """Load how often each level occurs, without the tables of pairs.

    Parameters
    ----------
    path
        Path written by `PairCounts.save` or a pipeline.
    folds
        Folds to sum; None sums all.

    Returns
    -------
    Array of shape (n_levels,): number of samples with each level, int64; effective samples, float64, if weights differ.

    Raises
    ------
    StoreError
        If the group is missing, damaged, or of another kind.
    SchemaError
        If a fold does not exist or is repeated.
    """
    arrays, attributes = read_arrays(Path(path), ["singles", "samples"], kind=KIND)
    chosen = check_folds(folds, len(arrays["samples"]))
    singles: IntArray = arrays["singles"][chosen].sum(axis=0)
    found = attributes.get("weights")
    weights = None if found is None else WeightSums.from_json(found).select(chosen)
    return count_in_samples([singles], int(arrays["samples"][chosen].sum()), weights)[0][0]


def load_fold_singles(path: str | Path) -> IntArray:
    """Load how often each level occurs in each fold, in rounded samples: int64 of shape (n_folds, n_levels)."""
    arrays, attributes = read_arrays(Path(path), ["singles", "samples"], kind=KIND)
    found = attributes.get("weights")
    weights = None if found is None else WeightSums.from_json(found)
    singles = count_in_samples([arrays["singles"]], int(arrays["samples"].sum()), weights)[0][0]
    return np.rint(singles).astype(np.int64)


def load_shape(path: str | Path) -> tuple[Schema, int]:
    """Load the schema and the number of folds, without the counts.

    Parameters
    ----------
    path
        Path written by `PairCounts.save` or a pipeline.

    Returns
    -------
    The schema, and the number of folds.

    Raises
    ------
    StoreError
        If the group is missing, damaged, or of another kind.
    """
    stored = StoredTables(Path(path))
    return stored.schema, stored.n_folds


def count_pairs(
    codes: object,
    cardinalities: IntArray | Sequence[int] | Schema | None = None,
    *,
    n_folds: int = DEFAULT_FOLDS,
    weight: object | None = None,
) -> PairCounts:
    """Count the co-occurrences of all pairs of levels.

    Parameters
    ----------
    codes
        A DataFrame or another table in memory, an array of answers, or `Codes` of shape (n_rows, n_variables), -1
        missing; or an iterator over such batches, for example chunks of a file. Batches give the same counts as a
        single table.
    cardinalities
        Number of levels of each variable, shape (n_variables,); or a schema. None infers the schema: for a table by
        `Schema.infer`, for `Codes` from the largest code of each variable.
    n_folds
        Number of folds; rows are assigned by a hash of their row number. 1 keeps a single table.
    weight
        Weights of the samples, numbers above 0 of shape (n_rows,). Tables are then sums of weights, as integers in
        units of 10 ** -decimals: ``weight_decimals`` of the schema, or else as few as represent all weights, at most 6
        unless small weights need more.
        Integer weights give exactly the tables of rows repeated that many times; weights of 1 give unweighted counts.

    Returns
    -------
    The counts, by fold.

    Raises
    ------
    SchemaError
        If a code is below -1 or not below its variable's cardinality, or n_folds is below 1.
    PmfError
        If a weight is missing, 0, negative, infinite, or changed by rounding by more than a thousandth; if their sum,
        in units, is 2**63 or more; if weights are in another order than the samples, or given with batches.

    Examples
    --------
    >>> counts = count_pairs(np.array([[0, 1], [0, -1], [1, 1]]), [2, 2])
    >>> counts.to_dense().tolist()
    [[2, 0, 0, 1], [0, 1, 0, 1], [0, 0, 0, 0], [1, 1, 0, 2]]
    """
    check(at_least(1, whole=True), SchemaError, n_folds=n_folds)
    if cardinalities is None and isinstance(codes, Iterator):
        raise SchemaError(
            "codes is an iterator over batches, from which no schema can be inferred: pass one, for example from "
            "pmflib.Schema.infer(batch)"
        )
    schema = Schema.infer(codes) if cardinalities is None else read_schema(cardinalities)
    if (
        cardinalities is not None
        and not isinstance(cardinalities, Schema)
        and hasattr(codes, "columns")
    ):
        raise SchemaError(
            f"codes is {name_type(codes)} and cardinalities are numbers: omit them, or pass a table with its "
            "schema, for example from pmflib.Schema.infer(table), or codes with numbers"
        )
    check_row_order(codes, weight=weight)
    total = PairCounts.zero(schema, n_folds)
    if isinstance(codes, Iterator):
        if weight is not None:
            raise PmfError(
                "weight is given and codes is an iterator over batches; count each batch with its weights under one "
                "schema, and add the counts up"
            )
        count_batches(codes, schema, total.tables, total.n_rows)
        return total
    if not schema.holds_codes(codes):
        codes = schema.encode(codes)
    schema.check_shape(codes)
    if weight is not None:
        weights = read_weights(weight, len(codes), decimals=schema.weight_decimals)
        if not weights.are_ones or schema.weight_decimals is not None:
            return _count_weighted(schema.check_codes(codes), weights, total)
    if choose_fold_planes(codes, schema.offsets, n_folds):
        from pmflib.counts.kernels.fold_planes import count_folds  # importing numba is slow

        if not count_folds(codes, schema.offsets, total.tables, total.n_rows):
            schema.check_codes(codes)  # reports the code that is out of range
        return total
    codes = schema.check_codes(codes)
    folds = assign_folds(np.arange(codes.shape[0]), n_folds)
    for fold in range(n_folds):
        mine = codes[folds == fold] if n_folds > 1 else codes
        add_block(DenseBlock(mine), schema.offsets, total.tables[fold])
        total.n_rows[fold] = mine.shape[0]
    return total


DIGITS = 24
"""Number of binary digits for the largest non-integer weight, when counts are used for starting values."""


def count_block(block: DenseBlock, schema: Schema, n_folds: int = DEFAULT_FOLDS) -> PairCounts:
    """Apply `count_pairs` to valid samples, counting each row with its weight.

    Tables are float64 if rows have weights, which are rounded to `DIGITS` binary digits.
    """
    if block.weights is None or not len(block):
        return count_pairs(Codes(block.codes), schema, n_folds=n_folds)
    scale = (1 << DIGITS) / float(block.weights.max())
    weights = Weights(np.maximum(np.rint(block.weights * scale), 1).astype(np.int64), 0)
    counts = _count_weighted(block.codes, weights, PairCounts.zero(schema, n_folds))
    assert counts.weights is not None
    n_rows = np.rint(np.array(counts.weights.totals) / scale).astype(np.int64)
    tables: Any = counts.tables / scale
    return PairCounts(schema, tables, n_rows)


def _count_weighted(codes: IntArray, weights: Weights, total: PairCounts) -> PairCounts:
    """Add valid codes with weights to counts of no samples."""
    folds = assign_folds(np.arange(len(codes)), total.n_folds)
    order = np.argsort(folds.astype(np.int16), kind="stable")
    units, offsets = weights.units[order], total.schema.offsets
    ends = np.cumsum(np.bincount(folds, minlength=total.n_folds))
    sums = []
    for fold, stop in enumerate(ends.tolist()):
        own = slice(int(ends[fold - 1]) if fold else 0, stop)
        add_weighted_rows(DenseBlock(codes), order[own], units[own], offsets, total.tables[fold])
        total.n_rows[fold] = own.stop - own.start
        sums.append(Weights(units[own], weights.decimals).sums)
    return replace(total, weights=WeightSums.stack(sums))
