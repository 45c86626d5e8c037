"""Columns of a matrix in a Zarr group, a partition at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.errors import StoreError
from pmflib.store.zarr_arrays import open_group, refuse_damage


@dataclass(frozen=True)
class ColumnPart:
    """Consecutive columns of a matrix; travels well to another process.

    Parameters
    ----------
    path, name
        Zarr group, and the array in it, of shape (n_rows, n_columns).
    start, stop
        Columns.
    """

    path: str
    name: str
    start: int
    stop: int


def list_columns(path: Path, name: str, *, part_bytes: int = 64 << 20) -> list[ColumnPart]:
    """Cut a matrix in parts of whole chunks of columns.

    Parameters
    ----------
    path, name
        Zarr group, and the array in it.
    part_bytes
        Size of a part as float64, at least; a chunk that is larger is a part.

    Raises
    ------
    StoreError
        If there is no such array, or it is no matrix with a column.
    """
    array = _open(path, name)
    n_rows, n_columns = array.shape
    chunk = array.chunks[1]
    step = chunk * max(1, part_bytes // max(1, 8 * n_rows * chunk))
    return [
        ColumnPart(str(path), name, start, min(start + step, n_columns))
        for start in range(0, n_columns, step)
    ]


def read_columns(part: ColumnPart) -> FloatArray:
    """Read a part: float64 of shape (n_rows, stop - start).

    Raises
    ------
    StoreError
        If it cannot be read.
    """
    with refuse_damage(Path(part.path)):
        array = _open(Path(part.path), part.name)
        return np.asarray(array[:, part.start : part.stop], np.float64)


def _open(path: Path, name: str) -> Any:
    array: Any = open_group(path).get(name)
    if getattr(array, "ndim", 0) != 2 or not array.shape[1]:
        raise StoreError(f"{name!r} of {str(path)!r} is no matrix with a column; name another")
    return array
