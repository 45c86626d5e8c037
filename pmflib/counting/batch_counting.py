"""Pair counts of a table that comes in batches, such as the chunks of a file that does not fit in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pmflib.arrays import IntArray
from pmflib.blocks import DenseBlock
from pmflib.counting.adding import add_block
from pmflib.hashing import assign_folds
from pmflib.reporting.work_progress import working
from pmflib.schema import Schema


def count_batches(
    batches: Iterator[object], schema: Schema, tables: IntArray, n_rows: IntArray
) -> None:
    """Add the counts of batches to tables; rows are dealt to folds by their number among all.

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
