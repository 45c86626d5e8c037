"""Co-occurrence counts of pairs, in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pmflib.arrays import IntArray
from pmflib.blocks import DenseBlock
from pmflib.counting.adding import add_block
from pmflib.counting.folded import DEFAULT_FOLDS, FoldedCounts, check_folds, read_schema
from pmflib.errors import SchemaError
from pmflib.hashing import assign_folds
from pmflib.level_blocks import sum_pairs
from pmflib.schema import Schema
from pmflib.store.zarr_arrays import (
    add_arrays,
    check_kind,
    create_array,
    open_group,
    read_arrays,
    read_rows,
    refuse_damage,
    write_arrays,
)

KIND = "pair counts"


@dataclass(frozen=True, eq=False)
class PairCounts(FoldedCounts):
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

    Raises
    ------
    SchemaError
        If the shapes do not agree.

    References
    ----------
    Ibrahim, Fu (2021), "Recovering joint probability of discrete random variables from pairwise marginals".
    """

    ORDER = 2

    def to_dense(self) -> IntArray:
        """Total over the folds: int64 of shape (n_levels, n_levels), symmetric, single counts on the diagonal."""
        upper: IntArray = self.tables.sum(axis=0)
        return upper + np.triu(upper, 1).T

    def save(self, path: str | Path) -> None:
        """Write the counts, their supports and the schema as a Zarr group; the folder must not exist."""
        writer = CountsWriter(Path(path), self.schema, self.n_folds)
        for fold in range(self.n_folds):
            writer.write(fold, self.tables[fold], int(self.n_rows[fold]))
        writer.close()

    @classmethod
    def load(cls, path: str | Path) -> PairCounts:
        """Read counts that `save` wrote.

        Raises
        ------
        StoreError
            If the group is absent, damaged, or holds something else.
        """
        schema, n_rows = _read_header(Path(path))
        arrays, _ = read_arrays(Path(path), ["counts"])
        return cls(schema, arrays["counts"], n_rows)

    @classmethod
    def load_total(cls, path: str | Path, *, folds: Iterable[int] | None = None) -> PairCounts:
        """Read the sum over folds, as counts of a single fold, in the memory of two tables.

        Parameters
        ----------
        path
            Where `save` wrote.
        folds
            Folds to add up, such as those of training; None adds up all.

        Raises
        ------
        StoreError
            If the group is absent, damaged, or holds something else.
        SchemaError
            If a fold is not there, or named twice.
        """
        schema, n_rows = _read_header(Path(path))
        wanted = check_folds(folds, n_rows.size)
        total = cls.zero(schema, 1)
        with refuse_damage(Path(path)):
            group = open_group(Path(path))
            for fold in wanted:
                total.tables[0] += read_rows(group, "counts", fold, fold + 1)[0]
        total.n_rows[0] = n_rows[wanted].sum()
        return total


class CountsWriter:
    """Writes counts fold by fold, in the memory of two tables.

    Parameters
    ----------
    path
        Folder of the new Zarr group; must not exist.
    schema
        The variables counted; kept in the group's attributes.
    n_folds
        Number of folds.
    """

    def __init__(self, path: Path, schema: Schema, n_folds: int) -> None:
        n_levels = schema.n_levels
        attributes = {
            "kind": KIND,
            "triangle": "upper",
            "units": "samples",
            "schema": schema.to_json(),
        }
        write_arrays(path, {"offsets": (schema.offsets, ("variable_edge",))}, attributes)
        self.schema = schema
        self._group = open_group(path, mode="a")
        # a fold is a chunk: one writer, and training totals read what they need
        self._counts = create_array(
            self._group,
            "counts",
            (n_folds, n_levels, n_levels),
            np.int64,
            ("fold", "level", "co_level"),
            chunk_rows=1,
        )
        self._samples = np.zeros(n_folds, np.int64)
        self._singles = np.zeros((n_folds, schema.n_levels), np.int64)
        self._support = np.zeros((schema.n_variables,) * 2, np.int64)

    def write(self, fold: int, table: IntArray, n_rows: int) -> None:
        """Write the counts of a fold; each fold must be written, be it with zeros.

        Parameters
        ----------
        fold
            In [0, n_folds).
        table
            int64 of shape (n_levels, n_levels), upper triangle.
        n_rows
            Samples counted.
        """
        self._counts[fold] = table
        self._samples[fold] = n_rows
        self._singles[fold] = table.diagonal()
        self._support += sum_pairs(table, self.schema.offsets)

    def close(self) -> None:
        """Write what is asked for without the tables: samples and single counts of each fold, supports of the pairs.

        The support of a pair is the number of samples that hold both variables.
        """
        support = self._support + np.triu(self._support, 1).T
        arrays = {
            "samples": (self._samples, ("fold",)),
            "singles": (self._singles, ("fold", "level")),
            "support": (support, ("variable", "co_variable")),
        }
        add_arrays(self._group, arrays)


def load_singles(path: str | Path, *, folds: Iterable[int] | None = None) -> IntArray:
    """Read how often each level occurs, without reading the tables of the pairs.

    Parameters
    ----------
    path
        Where `PairCounts.save` wrote.
    folds
        Folds to add up; None adds up all.

    Returns
    -------
    int64 of shape (n_levels,): samples that hold each level.

    Raises
    ------
    StoreError
        If the group is absent, damaged, or holds something else.
    SchemaError
        If a fold is not there, or named twice.
    """
    check_kind(Path(path), KIND)
    by_fold = read_arrays(Path(path), ["singles"])[0]["singles"]
    singles: IntArray = by_fold[check_folds(folds, len(by_fold))].sum(axis=0)
    return singles


def load_shape(path: str | Path) -> tuple[Schema, int]:
    """Read what was counted, without reading the counts.

    Parameters
    ----------
    path
        Where `PairCounts.save` wrote.

    Returns
    -------
    The schema, and the number of folds.

    Raises
    ------
    StoreError
        If the group is absent, damaged, or holds something else.
    """
    schema, n_rows = _read_header(Path(path))
    return schema, n_rows.size


def _read_header(path: Path) -> tuple[Schema, IntArray]:
    check_kind(path, KIND)
    arrays, attributes = read_arrays(path, ["samples"])
    with refuse_damage(path):
        return Schema.from_json(attributes["schema"]), arrays["samples"]


def count_pairs(
    codes: object,
    cardinalities: IntArray | Sequence[int] | Schema,
    *,
    n_folds: int = DEFAULT_FOLDS,
) -> PairCounts:
    """Count how often each pair of levels occurs together.

    Parameters
    ----------
    codes
        Integers of shape (n_rows, n_variables), -1 missing; or a table that the schema can encode.
    cardinalities
        Number of levels of each variable, shape (n_variables,); or a schema.
    n_folds
        Folds that rows are dealt to by a hash of their number; 1 keeps a single table.

    Returns
    -------
    The counts, by fold.

    Raises
    ------
    SchemaError
        If a code is below -1 or not below its variable's cardinality, or n_folds is below 1.

    Examples
    --------
    >>> counts = count_pairs(np.array([[0, 1], [0, -1], [1, 1]]), [2, 2])
    >>> counts.to_dense().tolist()
    [[2, 0, 0, 1], [0, 1, 0, 1], [0, 0, 0, 0], [1, 1, 0, 2]]
    """
    if n_folds < 1:
        raise SchemaError(f"n_folds is {n_folds}; give at least 1")
    schema = read_schema(cardinalities)
    codes = schema.encode(codes)
    total = PairCounts.zero(schema, n_folds)
    folds = assign_folds(np.arange(codes.shape[0]), n_folds)
    for fold in range(n_folds):
        mine = codes[folds == fold] if n_folds > 1 else codes
        add_block(DenseBlock(mine), schema.offsets, total.tables[fold])
        total.n_rows[fold] = mine.shape[0]
    return total
