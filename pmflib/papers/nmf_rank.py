"""Rank of a real matrix factorisation V = W H from moments of the columns of V.

The published estimate is the support union of a convex problem over a fourth-order moment; the other method counts the
rows of V that are no non-negative combination of the others. Moments add over parts of the columns, so a matrix may be
larger than memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.errors import PmfError, StoreError
from pmflib.cluster.clients import Client
from pmflib.cluster.maps import run_blocks
from pmflib.papers.support_union import ConicOrder, RowSupport, fit_row_support, order_generators
from pmflib.store.zarr_arrays import open_group, refuse_damage

Method = Literal["generators", "support_union"]

PUBLISHED_PENALTY = 10.0
"""Weight of the group norms in the published experiments, whose components have variance 1."""

PART_BYTES = 64 << 20
"""Minimum size in bytes (as float64) of the part of a stored matrix read at a time."""

SAME_SUMS = 1e-8
"""Fraction of the variance of entries below which the weighted sums of the columns do not differ."""


@dataclass(frozen=True, eq=False)
class NMFRank:
    """Estimated number of components of a matrix.

    Parameters
    ----------
    rank
        Number of components.
    rows
        int64 of shape (rank,): rows that generate all others, in the order of the matrix.
    method
        "generators" or "support_union".
    order
        Rows in the order of their elimination, with their costs (generators); ``order.rise`` near 1 means that there is
        no clear number.
    support
        Solution of the convex problem (support_union), with convergence, relative error and duality gap.
    """

    rank: int
    rows: IntArray
    method: Method
    order: ConicOrder | None = field(default=None, repr=False)
    support: RowSupport | None = field(default=None, repr=False)


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
    if method not in get_args(Method):
        raise PmfError(f"method is {method!r}; give one of {get_args(Method)}")
    row_weights = None if weights is None else np.asarray(weights, np.float64)
    if isinstance(matrix, str | Path):
        path = Path(matrix)
        moments = sum_moments(client, path.parent, path.name, weights=row_weights)
    else:
        values = np.asarray(matrix, np.float64)
        # centred at the mean, so that nothing cancels
        origin = values.mean(axis=1) if values.ndim == 2 and values.size else None
        moments = ColumnMoments.of_columns(values, origin, row_weights)
    if method == "generators":
        order = order_generators(moments.to_gram())
        return NMFRank(order.rank, order.generators, method, order=order)
    covariance = moments.to_covariance()
    spread = float(moments.weights @ covariance @ moments.weights)
    if spread <= SAME_SUMS * float(moments.weights**2 @ np.diagonal(covariance)):
        raise PmfError(
            "weights: the columns of matrix all have the same weighted sum, which leaves no moment; give weights that "
            "differ, as numpy.random.default_rng(0).random(n_rows), or take method 'generators'"
        )
    support = fit_row_support(moments.to_cumulant_moment(), penalty)
    return NMFRank(support.rank, np.flatnonzero(support.rows), method, support=support)


@dataclass(frozen=True, eq=False)
class ColumnMoments:
    """Sums over columns y relative to an origin, where s is the weighted sum of a column's entries.

    Parameters
    ----------
    origin
        float64 of shape (n_rows,), subtracted from every column; near the mean, cancellation is avoided.
    weights
        float64 of shape (n_rows,): weights of the entries in s. Ones are published; other weights are needed if all
        columns have the same sum, as with counts.
    n_columns
        Number of columns summed.
    first
        float64 of shape (n_rows,): sum of y.
    second, third, fourth
        float64 of shape (n_rows, n_rows): sums of y y', s y y' and s^2 y y'.
    """

    origin: FloatArray
    weights: FloatArray
    n_columns: int
    first: FloatArray
    second: FloatArray
    third: FloatArray
    fourth: FloatArray

    @classmethod
    def zero(cls, origin: FloatArray, weights: FloatArray) -> ColumnMoments:
        """Return the moments of no columns: the identity of `merge`."""
        empty = np.zeros((origin.size, origin.size))
        return cls(origin, weights, 0, np.zeros(origin.size), empty, empty, empty)

    @classmethod
    def of_columns(
        cls, matrix: FloatArray, origin: FloatArray | None = None, weights: FloatArray | None = None
    ) -> ColumnMoments:
        """Compute the moments of the columns of a matrix.

        Parameters
        ----------
        matrix
            Array of shape (n_rows, n_columns), finite.
        origin, weights
            float64 of shape (n_rows,), the same for all partitions; by default zeros and ones.

        Raises
        ------
        PmfError
            If the shapes do not match, or an entry is not finite.
        """
        if matrix.ndim != 2:
            raise PmfError(f"matrix has shape {matrix.shape}; give (n_rows, n_columns)")
        origin = np.zeros(len(matrix)) if origin is None else origin
        weights = np.ones(len(matrix)) if weights is None else weights
        if not origin.shape == weights.shape == matrix.shape[:1]:
            raise PmfError(
                f"origin has shape {origin.shape} and weights {weights.shape}; matrix has "
                f"{len(matrix)} rows"
            )
        if not np.isfinite(matrix).all():
            raise PmfError("matrix holds an entry that is not finite; every entry must be known")
        columns = matrix.astype(np.float64) - origin[:, None]
        scaled = columns * (weights @ columns)
        return cls(
            origin,
            weights,
            matrix.shape[1],
            columns.sum(axis=1),
            columns @ columns.T,
            columns @ scaled.T,
            scaled @ scaled.T,
        )

    @property
    def nbytes(self) -> int:
        """Return the size in bytes."""
        return 3 * self.origin.nbytes + 3 * self.second.nbytes

    @staticmethod
    def merge(parts: Sequence[ColumnMoments]) -> ColumnMoments:
        """Sum moments with the same origin and weights, at least one, in the given order.

        Raises
        ------
        PmfError
            If origins or weights differ.
        """
        origin, weights = parts[0].origin, parts[0].weights
        if any(
            not (np.array_equal(part.origin, origin) and np.array_equal(part.weights, weights))
            for part in parts
        ):
            raise PmfError("moments differ in origin or weights; give every partition the same")
        first, second = parts[0].first.copy(), parts[0].second.copy()
        third, fourth = parts[0].third.copy(), parts[0].fourth.copy()
        for part in parts[1:]:
            first += part.first
            second += part.second
            third += part.third
            fourth += part.fourth
        n_columns = sum(part.n_columns for part in parts)
        return ColumnMoments(origin, weights, n_columns, first, second, third, fourth)

    def to_gram(self) -> FloatArray:
        """Return the mean of v v' over the columns v, not centred: float64 of shape (n_rows, n_rows)."""
        self._check_any()
        shift = np.outer(self.first, self.origin)
        whole = self.second + shift + shift.T
        return whole / self.n_columns + np.outer(self.origin, self.origin)

    def to_covariance(self) -> FloatArray:
        """Return the covariance matrix of the columns, float64 of shape (n_rows, n_rows)."""
        self._check_any()
        mean = self.first / self.n_columns
        return self.second / self.n_columns - np.outer(mean, mean)

    def to_cumulant_moment(self) -> FloatArray:
        """Compute the second-order moment of the fourth-order cumulant of the centred columns.

        Returns
        -------
        float64 of shape (n_rows, n_rows), symmetric: up to sampling W diag(kurtosis * u^2) W' for
        columns W h + Gaussian noise with independent entries of h, where u are the weighted sums of
        the columns of W.

        References
        ----------
        Liu, "Model selection for nonnegative matrix factorization by support union recovery",
        equations (5) and (91).
        """
        self._check_any()
        n = self.n_columns
        mean = self.first / n
        total = float(self.weights @ mean)
        by_sum = self.second @ self.weights
        # sums over the centred columns v, with p the weighted sum of a column's entries
        covariance = self.second - n * np.outer(mean, mean)
        pull = covariance @ self.weights
        squares = float(self.weights @ pull)
        weighted = self.third @ self.weights - 2 * total * by_sum + total**2 * self.first
        cross = np.outer(weighted, mean)
        quartic = self.fourth - 2 * total * self.third + total**2 * self.second
        quartic = quartic - cross - cross.T + squares * np.outer(mean, mean)
        gaussian = (squares * covariance + 2 * np.outer(pull, pull)) / n**2
        moment = quartic / n - gaussian
        return np.asarray((moment + moment.T) / 2)

    def _check_any(self) -> None:
        if not self.n_columns:
            raise PmfError("moments of no columns; give at least one")


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
    array: Any = open_group(path).get(name)
    if getattr(array, "ndim", 0) != 2 or not array.shape[1]:
        raise StoreError(f"{name!r} of {str(path)!r} is no matrix with a column; name another")
    return array
