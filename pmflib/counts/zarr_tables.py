"""Count tables on disk, read and written fold by fold: full tables, or differences from those of another artefact."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import IntArray, choose_count_type, sum_pairs
from pmflib.base.errors import StoreError
from pmflib.base.json_records import JsonRecord, from_json
from pmflib.base.weights import WeightSums
from pmflib.counts.cell_changes import CellChanges
from pmflib.schema import Schema
from pmflib.store.array_groups import open_group, read_array_rows, read_arrays, refuse_damage
from pmflib.store.file_digests import FOLDER_DIGITS, check_file, holds
from pmflib.store.zarr_arrays import add_arrays, create_array, create_group, set_attributes

if TYPE_CHECKING:
    import pyarrow.parquet as pq

KIND = "pair counts"
PAIRS = "pairs"
"""Name of the Zarr group of the counts in an artefact's folder."""
CHANGES = "changes.parquet"
"""File of changed cells beside that group, with one row group per fold."""
CHANGES_SCHEMA = pa.schema([("place", pa.int64()), ("change", pa.int64())])
"""Columns of the changed cells, as in `CellChanges`."""
BELOW_ZERO = (
    "differences subtract samples that were never counted, so a dataset or counts are damaged: delete these counts "
    "and those that they refer to, and run the pipeline again, which recounts all samples"
)
"""Message if a count becomes negative."""
MAX_DIFFERENCES = 32
"""Maximum length of a chain: a month of nightly runs. Each difference is a file to open and an artefact to keep."""


@dataclass(frozen=True)
class Chain(JsonRecord):
    """Location of count tables: a full artefact, and the differences that lead from it to these counts.

    Parameters
    ----------
    digests
        Digests of the artefacts that these counts depend on, the full one first and the base last; empty if these
        counts are full tables.
    full_cells
        Number of non-zero cells of the full tables, over all folds.
    changed_cells
        Number of changed cells of all differences since then, including those of these counts.
    """

    digests: Annotated[tuple[Annotated[str, re.compile("[0-9a-f]{64}")], ...], "chain"]
    full_cells: int
    changed_cells: int

    def extend(self, base: str, n_changed: int) -> Chain | None:
        """Extend the chain by one difference; None if it is better to write full tables.

        Parameters
        ----------
        base
            Digest of the artefact with these counts.
        n_changed
            Number of changed cells over all folds.

        Notes
        -----
        Full tables are written in three cases: if the changed cells since the last full tables would exceed the
        non-zero cells (so reading takes at most twice as long as full tables, and all full tables ever written take
        about as much space as all differences), if this change alone is more than half of them, or if the chain would
        be longer than ``MAX_DIFFERENCES``.
        """
        changed = self.changed_cells + n_changed
        is_long = len(self.digests) >= MAX_DIFFERENCES
        if is_long or changed > self.full_cells or 2 * n_changed > self.full_cells:
            return None
        return Chain((*self.digests, base), self.full_cells, changed)


@dataclass(frozen=True, eq=False)
class Selection:
    """Some variables, whose pairs are counted, and the single counts of all.

    Parameters
    ----------
    counted
        int64, positions of the variables, in order.
    singles
        int64 of shape (n_folds, n_levels), over the levels of all variables.
    """

    counted: IntArray
    singles: IntArray


class StoredTables:
    """Count tables on disk, read fold by fold.

    Parameters
    ----------
    path
        Zarr group written by `CountsWriter` or `DifferenceWriter`.

    Attributes
    ----------
    schema
        All variables; single counts are of these.
    counted
        int64, positions of the variables whose pairs are counted, in order: all of them, or a selection.
    n_rows
        int64 of shape (n_folds,), number of samples.
    chain
        Artefacts from which the tables are read.
    weights
        Total weight of the samples; None if they are unweighted.

    Raises
    ------
    StoreError
        If the group is missing, damaged, or of another kind.
    """

    def __init__(self, path: Path) -> None:
        with refuse_damage(path):
            arrays, attributes = read_arrays(path, ["samples"], kind=KIND)
            self.schema = Schema.from_json(attributes["schema"])
            n_variables = self.schema.n_variables
            chosen = attributes.get("counted", range(n_variables))
            self.counted = np.fromiter(chosen, np.int64, len(chosen))
            if not is_selection(self.counted, n_variables):
                raise ValueError("the variables with counts of pairs are no selection of all")
            self.n_rows: IntArray = arrays["samples"]
            self.chain = from_json(Chain, attributes, is_part=True)
            found = attributes.get("weights")
            self.weights = None if found is None else WeightSums.from_json(found)
        self.path = path

    @property
    def n_folds(self) -> int:
        """Return the number of folds."""
        return self.n_rows.size

    @property
    def is_complete(self) -> bool:
        """Return whether the pairs of all variables are counted."""
        return self.counted.size == self.schema.n_variables

    @cached_property
    def table_schema(self) -> Schema:
        """Return the variables whose pairs are counted: the rows and columns of the tables."""
        return self.schema if self.is_complete else self.schema.select(self.counted)

    def list_missing(self) -> list[str]:
        """Return the digests of the artefacts that these tables depend on and that are not in the store."""
        return [digest for digest in self.chain.digests if not holds(self._locate(digest))]

    @property
    def base(self) -> str:
        """Return the digest of the artefact that these counts are differences to; "" for full tables."""
        return self.chain.digests[-1] if self.chain.digests else ""

    def read_changes(self, fold: int) -> CellChanges:
        """Read the changes of a fold relative to the base.

        Raises
        ------
        StoreError
            If these counts are full tables, or the changes are missing or damaged.
        """
        if not self.base:
            raise StoreError(f"counts {str(self.path.parent)!r} are full tables, not differences")
        with refuse_damage(self.path):
            return _read_changes(
                _open_changes(self.path.parent), fold, self.table_schema.n_levels**2
            )

    def read(self, fold: int) -> IntArray:
        """Read the table of a fold: int64 of shape (n_levels, n_levels) of `table_schema`, upper triangle.

        Raises
        ------
        StoreError
            If the table, or one that it depends on, is missing or damaged, or a count is negative.
        """
        _, differences = self._opened
        with refuse_damage(self.path):
            table: IntArray = self._read_full(fold).astype(np.int64, copy=False)
            for file in differences:
                if not _read_changes(file, fold, table.size).add_to(table):
                    raise StoreError(f"counts {str(self.path.parent)!r}: {BELOW_ZERO}")
        return table

    def add_up(self, folds: Iterable[int]) -> IntArray:
        """Add up the tables of some folds: see `read`."""
        total = np.zeros((self.table_schema.n_levels,) * 2, np.int64)
        for fold in folds:
            with refuse_damage(self.path):
                total += self.read(fold) if self.base else self._read_full(fold)
        return total

    def _read_full(self, fold: int) -> IntArray:
        """Read a full table as it is stored: the smallest integers that hold it."""
        found: IntArray = read_array_rows(self._opened[0], "counts", fold, fold + 1)[0]
        return found

    @cached_property
    def _opened(self) -> tuple[Any, Sequence[pq.ParquetFile]]:
        """Return the group of the full tables, and the files of the differences from them, in order."""
        if missing := self.list_missing():
            raise StoreError(
                f"counts {str(self.path.parent)!r} are differences to counts {missing[0][:FOLDER_DIGITS]}, which are "
                "not in the store; restore these from a copy, or run the pipeline again, which recounts all samples"
            )
        folders = [*map(self._locate, self.chain.digests), self.path.parent]
        full = folders[0] / PAIRS if self.chain.digests else self.path
        with refuse_damage(self.path):
            group = open_group(full)
            return group, list(map(_open_changes, folders[1:]))

    def _locate(self, digest: str) -> Path:
        """Return the folder of another artefact of the same kind, derived from the digest only."""
        return self.path.resolve().parents[1] / digest[:FOLDER_DIGITS]


def is_selection(positions: IntArray, n_variables: int) -> bool:
    """Return whether positions are those of at least one variable, in order and each once."""
    inside = positions.size and positions[0] >= 0 and positions[-1] < n_variables
    return bool(inside and (np.diff(positions) > 0).all())


def _open_changes(folder: Path) -> pq.ParquetFile:
    # loaded only for differences, as questions to full tables read no Parquet
    import pyarrow.parquet as pq

    check_file(folder / CHANGES)
    return pq.ParquetFile(folder / CHANGES, page_checksum_verification=True)


def _read_changes(file: pq.ParquetFile, fold: int, n_cells: int) -> CellChanges:
    if not fold < file.num_row_groups:
        raise ValueError(f"the changes of fold {fold} are missing")
    table = file.read_row_group(fold)
    positions, changes = (table[name].to_numpy() for name in CHANGES_SCHEMA.names)
    if positions.size and not (
        positions[0] >= 0 and positions[-1] < n_cells and (np.diff(positions) > 0).all()
    ):
        raise ValueError(f"the changes of fold {fold} are not ordered cells of its table")
    return CellChanges(positions, changes)


class CountsWriter:
    """Writer of full tables, fold by fold, in the memory of two tables.

    Parameters
    ----------
    path
        Folder of the new Zarr group, which must not exist.
    schema
        Variables of the counts, saved in the group's attributes.
    n_folds
        Number of folds.
    weights
        Total weight of the samples; None if they are unweighted.
    selection
        Variables whose pairs are counted, with the single counts of all; None if all pairs are counted.
    """

    def __init__(
        self,
        path: Path,
        schema: Schema,
        n_folds: int,
        weights: WeightSums | None = None,
        selection: Selection | None = None,
    ) -> None:
        self.schema, self.weights, self.selection = schema, weights, selection
        self.table_schema = schema if selection is None else schema.select(selection.counted)
        n_levels = self.table_schema.n_levels
        self._path, self._group = path, create_group(path, {})
        self._counts: Any = None
        self._written: list[int] = []
        self._samples = np.zeros(n_folds, np.int64)
        self._singles = (
            np.zeros((n_folds, n_levels), np.int64) if selection is None else selection.singles
        )
        self._support = np.zeros((self.table_schema.n_variables,) * 2, np.int64)
        self._n_cells = 0

    def write(self, fold: int, table: IntArray, n_rows: int) -> None:
        """Write the counts of a fold; every fold must be written, even if it is empty.

        Parameters
        ----------
        fold
            In [0, n_folds).
        table
            int64 of shape (n_levels, n_levels) of the counted variables, upper triangle.
        n_rows
            Number of samples.
        """
        largest = int(table.max(initial=0))
        if self._counts is None or largest > np.iinfo(self._counts.dtype).max:
            self._widen(largest)
        self._counts[fold] = table.astype(self._counts.dtype, copy=False)
        self._written.append(fold)
        self._samples[fold] = n_rows
        if self.selection is None:
            self._singles[fold] = table.diagonal()
        self._support += sum_pairs(table, self.table_schema.offsets)
        self._n_cells += int(np.count_nonzero(table))

    def _widen(self, largest: int) -> None:
        """Store tables as the smallest integers that hold 1.5 times a count: folds are about equally large."""
        dtype = choose_count_type(largest + largest // 2)
        shape = self._samples.size, *(2 * [self.table_schema.n_levels])
        narrow, folder = self._path / "narrow", self._path / "counts"
        if self._counts is not None:
            os.rename(folder, narrow)
        # one chunk per fold: there is a single writer, and training totals read only the folds they need
        dims = "fold", "level", "co_level"
        self._counts = create_array(self._group, "counts", shape, dtype, dims, chunk_rows=1)
        if self._written:
            former: Any = self._group["narrow"]
            for fold in self._written:
                self._counts[fold] = former[fold]
            shutil.rmtree(narrow)

    def close(self) -> None:
        """Write the margins: samples and single counts by fold, and supports of pairs.

        The support of a pair is the number of samples with both variables observed.
        """
        _add_margins(self._group, self.schema, self._samples, self._singles, self._support)
        chain = Chain((), self._n_cells, 0)
        _describe(self._group, self.schema, chain, self.weights, self.selection)


class DifferenceWriter:
    """Writer of differences from other counts, fold by fold, and of full margins.

    Parameters
    ----------
    path
        Folder of the new Zarr group, which must not exist. The file of changed cells is placed beside it.
    base
        Counts to which the changes apply, with the same schema and folds.
    chain
        Location of the new tables, from `Chain.extend`.
    weights
        Total weight of the samples in the new counts; None if they are unweighted.
    selection
        The counted variables of the base, with the new single counts of all; None if all pairs are counted.
    """

    def __init__(
        self,
        path: Path,
        base: StoredTables,
        chain: Chain,
        weights: WeightSums | None = None,
        selection: Selection | None = None,
    ) -> None:
        import pyarrow.parquet as pq

        arrays, _ = read_arrays(base.path, ["singles", "support"])
        self.schema, self._weights, self._selection = base.schema, weights, selection
        self._base, self._chain = base, chain
        self._samples = base.n_rows.copy()
        self._singles = arrays["singles"] if selection is None else selection.singles
        self._support = np.triu(arrays["support"])
        self._group = create_group(path, {})
        self._file = pq.ParquetWriter(
            path.parent / CHANGES,
            CHANGES_SCHEMA,
            compression="zstd",
            # distances between positions need few bits, and there are few distinct changes
            column_encoding={"place": "DELTA_BINARY_PACKED"},
            use_dictionary=["change"],
            write_statistics=False,
            write_page_checksum=True,
        )

    def write(self, fold: int, changes: CellChanges, n_rows: int) -> None:
        """Write the changes of a fold; every fold must be written in order, even if nothing changes.

        Parameters
        ----------
        fold
            In [0, n_folds).
        changes
            Changed cells.
        n_rows
            Change in the number of samples.
        """
        columns = [pa.array(changes.positions), pa.array(changes.changes)]
        table = pa.Table.from_arrays(columns, schema=CHANGES_SCHEMA)
        self._file.write_table(table, row_group_size=max(1, changes.n_cells))
        self._samples[fold] += n_rows
        offsets = self._base.table_schema.offsets
        if self._selection is None:
            self._singles[fold] += changes.sum_levels(self.schema.n_levels)
        self._support += changes.sum_pairs(offsets)

    def close(self) -> None:
        """Write the data that can be read without the tables.

        Raises
        ------
        StoreError
            If more samples are removed than were counted.
        """
        self._file.close()
        if min(array.min(initial=0) for array in (self._samples, self._singles, self._support)) < 0:
            raise StoreError(f"counts {str(self._base.path.parent)!r}: {BELOW_ZERO}")
        _add_margins(self._group, self.schema, self._samples, self._singles, self._support)
        _describe(self._group, self.schema, self._chain, self._weights, self._selection)


def _add_margins(
    group: Any, schema: Schema, samples: IntArray, singles: IntArray, support: IntArray
) -> None:
    """Write the margins as small arrays; the support is an upper triangle."""
    arrays = {
        "offsets": (schema.offsets, ("variable_edge",)),
        "samples": (samples, ("fold",)),
        "singles": (singles, ("fold", "level")),
        "support": (support + np.triu(support, 1).T, ("variable", "co_variable")),
    }
    add_arrays(group, arrays)


def _describe(
    group: Any,
    schema: Schema,
    chain: Chain,
    weights: WeightSums | None,
    selection: Selection | None,
) -> None:
    # last, because Zarr would parse a long schema again for every new array
    attributes = {
        "kind": KIND,
        "triangle": "upper",
        "units": "samples",
        **chain.to_json(),
        "schema": schema.to_json(),
    }
    if weights is not None:
        attributes |= {"units": f"1e-{weights.decimals}", "weights": weights.to_json()}
    if selection is not None:
        attributes["counted"] = selection.counted.tolist()
    set_attributes(group, attributes)
