"""Moments of the columns of a matrix too large for memory: a map over partitions and a fixed tree of sums."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.running.clients import Client
from pmflib.running.maps import run_blocks
from pmflib.support_union.column_moments import ColumnMoments
from pmflib.support_union.stored_columns import ColumnPart, list_columns, read_columns


def sum_moments(
    client: Client,
    path: Path,
    name: str,
    *,
    weights: FloatArray | None = None,
    part_bytes: int = 64 << 20,
) -> ColumnMoments:
    """Sum the moments of all columns of a matrix in a Zarr group.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread: the same bits.
    path, name
        The group, and the array in it, of shape (n_rows, n_columns).
    weights
        As for `ColumnMoments`; None takes ones.
    part_bytes
        Size of a partition as float64, at least; a task holds about three times as much.

    Returns
    -------
    The moments, counted from the mean of the first partition.

    Raises
    ------
    StoreError
        If there is no such matrix, or it cannot be read.
    PmfError
        If an entry is not finite.
    """
    parts = list_columns(path, name, part_bytes=part_bytes)
    origin = read_columns(parts[0]).mean(axis=1)
    if weights is None:
        weights = np.ones(origin.size)

    return run_blocks(client, _take, parts, ColumnMoments.merge, origin, weights)


def _take(part: ColumnPart, origin: FloatArray, weights: FloatArray) -> ColumnMoments:
    return ColumnMoments.of_columns(read_columns(part), origin, weights)
