"""Rank of a matrix factorisation V = W H from moments of the columns of V, in memory or stored in parts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from pmflib.base.arrays import FloatArray
from pmflib.base.constraints import OneOf, check
from pmflib.base.errors import StoreError
from pmflib.cluster.clients import Client
from pmflib.cluster.maps import run_blocks
from pmflib.papers.nmf_rank import (
    PUBLISHED_PENALTY,
    ColumnMoments,
    Method,
    NMFRank,
    choose_rank,
)
from pmflib.store.array_groups import refuse_damage
from pmflib.store.zarr_arrays import open_zarr

PART_BYTES = 64 << 20
"""Minimum size in bytes (as float64) of the part of a stored matrix read at a time."""


def select_nmf_rank(
    matrix: npt.ArrayLike | str | Path,
    *,
    method: Method = "generators",
    penalty: float = PUBLISHED_PENALTY,
    weights: npt.ArrayLike | None = None,
    client: Client = None,
) -> NMFRank:
    """Estimate the number of components in a non-negative factorisation V = W H + noise of a matrix.

    Each component needs a row of V that belongs to it alone (W is separable), and V needs more rows than components; H
    may have any sign.

    Parameters
    ----------
    matrix
        Finite array of shape (n_rows, n_columns), where columns are samples; or the path of such an array in a Zarr
        group, read in parts.
    method
        "generators" eliminates rows one after another, starting with the row best fitted by a non-negative combination
        of the others, and stops where the misfit increases most; it needs few columns and no penalty. "support_union"
        is the published method: a group lasso on a fourth-order moment, unaffected by Gaussian noise. It needs
        thousands of columns, and independent, non-Gaussian components.
    penalty
        For "support_union", at least 0: weight of the group norms. It scales with the eighth power of the unit of the
        matrix; the default is for components of variance 1.
    weights
        For "support_union", shape (n_rows,): weights of the rows in the column sums used by the moment. None uses ones,
        as published, which are uninformative if all columns have the same sum.
    client
        Dask client for a matrix in a Zarr group, or None to work in this thread with equal bits.

    Returns
    -------
    The rank, and the generating rows.

    Raises
    ------
    PmfError
        If an argument is out of range, an entry is not finite, or the columns all have the same weighted sum.
    StoreError
        If there is no such array in the group, or it cannot be read.

    Notes
    -----
    Three matrices of shape (n_rows, n_rows) are in memory, whatever the number of columns.

    References
    ----------
    Liu, "Model selection for nonnegative matrix factorization by support union recovery", Algorithm 1; Arora, Ge,
    Kannan and Moitra (2012), Computing a nonnegative matrix factorization - provably, for the generators.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> mixing = np.vstack([np.eye(3), rng.random((5, 3))])
    >>> matrix = mixing @ rng.exponential(size=(3, 2000)) + 0.01 * rng.standard_normal((8, 2000))
    >>> select_nmf_rank(matrix)
    NMFRank(rank=3, rows=array([0, 1, 2]), method='generators')
    """
    check(OneOf(get_args(Method)), method=method)
    row_weights = None if weights is None else np.asarray(weights, np.float64)
    if isinstance(matrix, str | Path):
        path = Path(matrix)
        moments = sum_moments(client, path.parent, path.name, weights=row_weights)
    else:
        values = np.asarray(matrix, np.float64)
        # centred at the mean, so that nothing cancels
        origin = values.mean(axis=1) if values.ndim == 2 and values.size else None
        moments = ColumnMoments.of_columns(values, origin, row_weights)
    return choose_rank(moments, method, penalty)


def sum_moments(
    client: Client,
    path: Path,
    name: str,
    *,
    weights: FloatArray | None = None,
    part_bytes: int = PART_BYTES,
) -> ColumnMoments:
    """Sum the moments of all columns of a matrix in a Zarr group.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread with equal bits.
    path, name
        The group, and the array in it, of shape (n_rows, n_columns).
    weights
        As for `ColumnMoments`; None uses ones.
    part_bytes
        Minimum size of a partition as float64, bytes; a task needs about three times as much.

    Returns
    -------
    The moments, relative to the mean of the first partition.

    Raises
    ------
    StoreError
        If there is no such matrix, or it cannot be read.
    PmfError
        If an entry is not finite.
    """
    parts = _split_columns(path, name, part_bytes)
    origin = _read_part(parts[0]).mean(axis=1)
    if weights is None:
        weights = np.ones(origin.size)
    return run_blocks(client, _sum_part, parts, ColumnMoments.merge, origin, weights)


@dataclass(frozen=True)
class _ColumnPart:
    """Columns of an array of shape (n_rows, n_columns) in a Zarr group; travels well to another process."""

    path: Path
    name: str
    columns: slice


def _split_columns(path: Path, name: str, part_bytes: int) -> list[_ColumnPart]:
    """Parts of whole chunks of columns, of so many bytes as float64 at least; a chunk that is larger is a part."""
    array = _open_matrix(path, name)
    n_rows, n_columns = array.shape
    chunk = array.chunks[1]
    step = chunk * max(1, part_bytes // max(1, 8 * n_rows * chunk))
    starts = range(0, n_columns, step)
    return [_ColumnPart(path, name, slice(start, min(start + step, n_columns))) for start in starts]


def _read_part(part: _ColumnPart) -> FloatArray:
    with refuse_damage(part.path):
        return np.asarray(_open_matrix(part.path, part.name)[:, part.columns], np.float64)


def _sum_part(part: _ColumnPart, origin: FloatArray, weights: FloatArray) -> ColumnMoments:
    return ColumnMoments.of_columns(_read_part(part), origin, weights)


def _open_matrix(path: Path, name: str) -> Any:
    array: Any = open_zarr(path, "r").get(name)
    if getattr(array, "ndim", 0) != 2 or not array.shape[1]:
        raise StoreError(f"{name!r} of {str(path)!r} is no matrix with a column; name another")
    return array
