"""Write counts fold by fold: full tables, or differences to the tables of another artefact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.arrays import IntArray
from pmflib.counting.cell_changes import CellChanges
from pmflib.counting.stored_tables import (
    BELOW_ZERO,
    CHANGES,
    CHANGES_SCHEMA,
    KIND,
    Chain,
    StoredTables,
)
from pmflib.errors import StoreError
from pmflib.level_blocks import sum_pairs
from pmflib.schema import Schema
from pmflib.store.zarr_arrays import (
    add_arrays,
    create_array,
    create_group,
    read_arrays,
    set_attributes,
)


class CountsWriter:
    """Writes full tables fold by fold, in the memory of two tables.

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
        self.schema = schema
        self._group = create_group(path, {})
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
        self._singles = np.zeros((n_folds, n_levels), np.int64)
        self._support = np.zeros((schema.n_variables,) * 2, np.int64)
        self._n_cells = 0

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
        self._n_cells += int(np.count_nonzero(table))

    def close(self) -> None:
        """Write what is asked for without the tables: samples and single counts of each fold, supports of the pairs.

        The support of a pair is the number of samples that hold both variables.
        """
        _add_margins(self._group, self.schema, self._samples, self._singles, self._support)
        _describe(self._group, self.schema, Chain((), self._n_cells, 0))


class DifferenceWriter:
    """Writes what changes in the tables of other counts, fold by fold, and in full what is asked for without tables.

    Parameters
    ----------
    path
        Folder of the new Zarr group; must not exist. The changed cells go beside it.
    base
        Counts that change, of the same schema and folds.
    chain
        Where the new tables are: what `Chain.extend` gave.
    """

    def __init__(self, path: Path, base: StoredTables, chain: Chain) -> None:
        arrays, _ = read_arrays(base.path, ["singles", "support"])
        self.schema = base.schema
        self._base, self._chain = base, chain
        self._samples = base.n_rows.copy()
        self._singles = arrays["singles"]
        self._support = np.triu(arrays["support"])
        self._group = create_group(path, {})
        self._file = pq.ParquetWriter(
            path.parent / CHANGES,
            CHANGES_SCHEMA,
            compression="zstd",
            # steps between places take the bits that they need, and of changes there are few different ones
            column_encoding={"place": "DELTA_BINARY_PACKED"},
            use_dictionary=["change"],
            write_statistics=False,
            write_page_checksum=True,
        )

    def write(self, fold: int, changes: CellChanges, n_rows: int) -> None:
        """Write the changes of a fold; each fold must be written, in order, be it with none.

        Parameters
        ----------
        fold
            In [0, n_folds).
        changes
            Cells that change.
        n_rows
            Samples more, or less where negative.
        """
        columns = [pa.array(changes.places), pa.array(changes.changes)]
        table = pa.Table.from_arrays(columns, schema=CHANGES_SCHEMA)
        self._file.write_table(table, row_group_size=max(1, changes.n_cells))
        self._samples[fold] += n_rows
        self._singles[fold] += changes.sum_levels(self.schema.n_levels)
        self._support += changes.sum_pairs(self.schema.offsets)

    def close(self) -> None:
        """Write what is asked for without the tables.

        Raises
        ------
        StoreError
            If more samples go than were counted.
        """
        self._file.close()
        if min(array.min(initial=0) for array in (self._samples, self._singles, self._support)) < 0:
            raise StoreError(f"counts {str(self._base.path.parent)!r}: {BELOW_ZERO}")
        _add_margins(self._group, self.schema, self._samples, self._singles, self._support)
        _describe(self._group, self.schema, self._chain)


def _add_margins(
    group: Any, schema: Schema, samples: IntArray, singles: IntArray, support: IntArray
) -> None:
    """Write small arrays; the support is an upper triangle."""
    arrays = {
        "offsets": (schema.offsets, ("variable_edge",)),
        "samples": (samples, ("fold",)),
        "singles": (singles, ("fold", "level")),
        "support": (support + np.triu(support, 1).T, ("variable", "co_variable")),
    }
    add_arrays(group, arrays)


def _describe(group: Any, schema: Schema, chain: Chain) -> None:
    # last: Zarr would read a long schema again for every array that is made
    attributes = {
        "kind": KIND,
        "triangle": "upper",
        "units": "samples",
        **chain.to_json(),
        "schema": schema.to_json(),
    }
    set_attributes(group, attributes)
