"""Batches of a Parquet file in memory that does not grow with the number of its row groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa


def read_batches(
    file: Any, n_rows: int, *, groups: Iterable[int] | None = None, **options: Any
) -> Iterator[pa.RecordBatch]:
    """Read a Parquet file batch by batch, a few row groups at a time.

    One reader of all row groups would keep the columns of those that it has read.

    Parameters
    ----------
    file
        A `pyarrow.parquet.ParquetFile`.
    n_rows
        Maximum number of rows of a batch, at least 1.
    groups
        Row groups to read, in order; None for all.
    options
        Further options of `pyarrow.parquet.ParquetFile.iter_batches`.
    """
    waiting: list[int] = []
    n_waiting = 0
    for group in range(file.num_row_groups) if groups is None else groups:
        waiting.append(group)
        n_waiting += file.metadata.row_group(group).num_rows
        if n_waiting >= n_rows:
            yield from file.iter_batches(n_rows, waiting, use_threads=False, **options)
            waiting, n_waiting = [], 0
    if waiting:
        yield from file.iter_batches(n_rows, waiting, use_threads=False, **options)
