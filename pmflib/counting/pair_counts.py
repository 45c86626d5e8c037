"""Co-occurrence counts of pairs, in memory and on disk, of a table at once or in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pmflib.core.arrays import IntArray, check_whole, name_type, sum_pairs
from pmflib.core.blocks import DenseBlock
from pmflib.core.errors import PmfError, SchemaError
from pmflib.core.hashing import assign_folds
from pmflib.core.weights import Weights, WeightSums, read_weights
from pmflib.counting.block_counting import add_block, add_weighted_rows, choose_fold_planes
from pmflib.counting.folds import (
    DEFAULT_FOLDS,
    FoldedCounts,
    check_folds,
    count_in_samples,
    infer_schema,
    read_schema,
)
from pmflib.counting.stored_tables import KIND, CountsWriter, StoredTables
from pmflib.display.progress import working
from pmflib.display.summary import Summarised, Summary, format_count
from pmflib.schema import Schema
from pmflib.store.zarr_arrays import read_arrays

if TYPE_CHECKING:
    from pmflib.display.drawing import Axes


def count_batches(
    batches: Iterator[object], schema: Schema, tables: IntArray, n_rows: IntArray
) -> None:
    """Add the counts of batches to tables; rows are assigned to folds by their number among all.

    Parameters
    ----------
    batches
        Codes or tables that the schema can encode, one after another.
    schema
        The variables.
    tables
        int64 of shape (n_folds, n_levels, n_levels): written.
    n_rows
        int64 of shape (n_folds,): written.

    Raises
    ------
    SchemaError
        If a batch does not fit the schema; the batches before it have been counted.
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
                # how many there will be is not known
                report(number, number + 1, f"{first:,} rows")


@dataclass(frozen=True, eq=False, repr=False)
class PairCounts(FoldedCounts, Summarised):
    """How often each pair of levels occurs together, by fold.

    Parameters
    ----------
    schema
        The variables counted.
    tables
        int64 of shape (n_folds, n_levels, n_levels), upper triangles: entry (a, b), a <= b, is the number of
        samples that hold levels a and b; the diagonal blocks hold single counts on their diagonal.
    n_rows
        int64 of shape (n_folds,), samples counted.
    weights
        What their weights add up to, where they have any: an entry is then the sum of the weights of the samples.

    Raises
    ------
    SchemaError
        If the shapes do not agree.

    References
    ----------
    Ibrahim, Fu (2021), "Recovering joint probability of discrete random variables from pairwise marginals".
    """

    ORDER = 2

    def summary(self) -> Summary:
        """Rows, folds, and the pairs with the least support: text in a terminal, HTML in a notebook."""
        from pmflib.counting.figures import summarise_counts

        counts = self.to_samples()
        tables = np.rint(counts.tables).astype(np.int64)
        seen = np.rint(counts.count_levels()).astype(np.int64)
        found = summarise_counts(self.schema, tables, counts.n_rows, seen)
        if self.weights is None:
            return found
        n_all, worth = format_count(int(self.n_rows.sum())), format_count(round(self.n_effective))
        fact = ("weights", f"{n_all} samples are worth {worth}, in which all is counted here")
        return replace(found, facts=(fact, *found.facts))

    def to_dense(self) -> IntArray:
        """Total over the folds: int64 of shape (n_levels, n_levels), symmetric, single counts on the diagonal."""
        upper: IntArray = self.tables.sum(axis=0)
        return upper + np.triu(upper, 1).T

    def plot_support(self, **options: Any) -> Axes:
        """Draw how many samples stand behind the pairs: see `pmflib.counting.figures.plot_support`."""
        from pmflib.counting.figures import plot_support

        support = sum_pairs(self.to_samples().to_dense(), self.schema.offsets)
        return plot_support(np.rint(support).astype(np.int64), **options)

    def save(self, path: str | Path) -> None:
        """Write the counts, their supports and the schema as a Zarr group; the folder must not exist."""
        writer = CountsWriter(Path(path), self.schema, self.n_folds, self.weights)
        for fold in range(self.n_folds):
            writer.write(fold, self.tables[fold], int(self.n_rows[fold]))
        writer.close()

    @classmethod
    def load(cls, path: str | Path) -> PairCounts:
        """Read counts that `save` or a pipeline wrote.

        Raises
        ------
        StoreError
            If the group is absent, damaged, or holds something else, or other counts are not in the store that these
            are differences to.
        """
        stored = StoredTables(Path(path))
        loaded = cls.zero(stored.schema, stored.n_folds)
        for fold in range(stored.n_folds):
            loaded.tables[fold] = stored.read(fold)
        loaded.n_rows[:] = stored.n_rows
        return replace(loaded, weights=stored.weights)

    @classmethod
    def load_total(cls, path: str | Path, *, folds: Iterable[int] | None = None) -> PairCounts:
        """Read the sum over folds, as counts of a single fold, in the memory of two tables.

        Parameters
        ----------
        path
            Where `save` or a pipeline wrote.
        folds
            Folds to add up, such as those of training; None adds up all.

        Raises
        ------
        StoreError
            As `load` does.
        SchemaError
            If a fold is not there, or named twice.
        """
        return cls.add_up(StoredTables(Path(path)), folds)

    @classmethod
    def add_up(cls, stored: StoredTables, folds: Iterable[int] | None = None) -> PairCounts:
        """Do `load_total` with tables that are open already."""
        chosen = check_folds(folds, stored.n_folds)
        total = cls.zero(stored.schema, 1)
        for fold in chosen:
            total.tables[0] += stored.read(fold)
        total.n_rows[0] = stored.n_rows[chosen].sum()
        if stored.weights is None:
            return total
        return replace(total, weights=stored.weights.select(chosen).merge())


def load_singles(path: str | Path, *, folds: Iterable[int] | None = None) -> IntArray:
    """Read how often each level occurs, without reading the tables of the pairs.

    Parameters
    ----------
    path
        Where `PairCounts.save` or a pipeline wrote.
    folds
        Folds to add up; None adds up all.

    Returns
    -------
    Array of shape (n_levels,): samples that hold each level, int64; effective ones, float64, where weights differ.

    Raises
    ------
    StoreError
        If the group is absent, damaged, or holds something else.
    SchemaError
        If a fold is not there, or named twice.
    """
    arrays, attributes = read_arrays(Path(path), ["singles", "samples"], kind=KIND)
    chosen = check_folds(folds, len(arrays["samples"]))
    singles: IntArray = arrays["singles"][chosen].sum(axis=0)
    found = attributes.get("weights")
    weights = None if found is None else WeightSums.from_json(found).select(chosen)
    return count_in_samples([singles], int(arrays["samples"][chosen].sum()), weights)[0][0]


def load_fold_singles(path: str | Path) -> IntArray:
    """Read how often each level occurs in each fold, in samples, rounded: int64 of shape (n_folds, n_levels)."""
    arrays, attributes = read_arrays(Path(path), ["singles", "samples"], kind=KIND)
    found = attributes.get("weights")
    weights = None if found is None else WeightSums.from_json(found)
    singles = count_in_samples([arrays["singles"]], int(arrays["samples"].sum()), weights)[0][0]
    return np.rint(singles).astype(np.int64)


def load_shape(path: str | Path) -> tuple[Schema, int]:
    """Read what was counted, without reading the counts.

    Parameters
    ----------
    path
        Where `PairCounts.save` or a pipeline wrote.

    Returns
    -------
    The schema, and the number of folds.

    Raises
    ------
    StoreError
        If the group is absent, damaged, or holds something else.
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
    """Count how often each pair of levels occurs together.

    Parameters
    ----------
    codes
        A frame or another table in memory; integers of shape (n_rows, n_variables), -1 missing; or an iterator over
        such batches, as of chunks of a file: the same counts as of all of them in one table.
    cardinalities
        Number of levels of each variable, shape (n_variables,); or a schema. None infers the schema: of a table by
        `Schema.infer`, of integers with a level for each up to the largest.
    n_folds
        Folds that rows are assigned to by a hash of their number; 1 keeps a single table.
    weight
        Weights of the samples, numbers above 0 of shape (n_rows,): tables are then sums of them, as integers in units
        of 10 ** -decimals, ``weight_decimals`` of the schema, or else as few as hold all weights, 6 at most. Whole
        weights give the tables of rows that are repeated so often, bit for bit; weights of 1 are none.

    Returns
    -------
    The counts, by fold.

    Raises
    ------
    SchemaError
        If a code is below -1 or not below its variable's cardinality, or n_folds is below 1.
    PmfError
        If a weight is missing, 0, negative or infinite, or less than half a unit; if their sum, in units, is not below
        2**63; or if batches have weights.

    Examples
    --------
    >>> counts = count_pairs(np.array([[0, 1], [0, -1], [1, 1]]), [2, 2])
    >>> counts.to_dense().tolist()
    [[2, 0, 0, 1], [0, 1, 0, 1], [0, 0, 0, 0], [1, 1, 0, 2]]
    """
    check_whole("n_folds", n_folds)
    if n_folds < 1:
        raise SchemaError(f"n_folds is {n_folds}; give at least 1")
    if cardinalities is None and isinstance(codes, Iterator):
        raise SchemaError(
            "codes is an iterator over batches, which has no schema: give one, as pmflib.Schema.infer(batch) drafts it"
        )
    schema = infer_schema(codes) if cardinalities is None else read_schema(cardinalities)
    if (
        cardinalities is not None
        and not isinstance(cardinalities, Schema)
        and hasattr(codes, "columns")
    ):
        raise SchemaError(
            f"codes is {name_type(codes)} and cardinalities are numbers: leave them out, or give a table with its "
            "schema, as pmflib.Schema.infer(table) drafts it, or codes with numbers"
        )
    total = PairCounts.zero(schema, n_folds)
    if isinstance(codes, Iterator):
        if weight is not None:
            raise PmfError(
                "weight is given and codes is an iterator over batches; count each batch with its weights under one "
                "schema, and add the counts up"
            )
        count_batches(codes, schema, total.tables, total.n_rows)
        return total
    if not isinstance(codes, np.ndarray):
        codes = schema.encode(codes)
    schema.check_shape(codes)
    if weight is not None:
        weights = read_weights(weight, len(codes), decimals=schema.weight_decimals)
        if not weights.are_ones or schema.weight_decimals is not None:
            return _count_weighted(schema.check_codes(codes), weights, total)
    if choose_fold_planes(codes, schema.offsets, n_folds):
        from pmflib.kernels.fold_planes import count_folds  # numba loads on first use

        if not count_folds(codes, schema.offsets, total.tables, total.n_rows):
            schema.check_codes(codes)  # names the code that is out of range
        return total
    codes = schema.check_codes(codes)
    folds = assign_folds(np.arange(codes.shape[0]), n_folds)
    for fold in range(n_folds):
        mine = codes[folds == fold] if n_folds > 1 else codes
        add_block(DenseBlock(mine), schema.offsets, total.tables[fold])
        total.n_rows[fold] = mine.shape[0]
    return total


DIGITS = 24
"""Binary digits of the largest weight of samples whose weights are no integers: what starts are made from."""


def count_block(block: DenseBlock, schema: Schema, n_folds: int = DEFAULT_FOLDS) -> PairCounts:
    """Do `count_pairs` for valid samples, in the samples that their rows count for.

    Tables are float64 where rows have weights, of which `DIGITS` binary digits are taken.
    """
    if block.weights is None or not len(block):
        return count_pairs(block.codes, schema, n_folds=n_folds)
    scale = (1 << DIGITS) / float(block.weights.max())
    weights = Weights(np.maximum(np.rint(block.weights * scale), 1).astype(np.int64), 0)
    counts = _count_weighted(block.codes, weights, PairCounts.zero(schema, n_folds))
    assert counts.weights is not None
    n_rows = np.rint(np.array(counts.weights.totals) / scale).astype(np.int64)
    tables: Any = counts.tables / scale
    return PairCounts(schema, tables, n_rows)


def _count_weighted(codes: IntArray, weights: Weights, total: PairCounts) -> PairCounts:
    """Count valid codes with weights, into counts of no samples."""
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
