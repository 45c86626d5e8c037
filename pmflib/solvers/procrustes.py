"""Nonnegative square roots by Procrustes: the core of symmetric NMF.

The top eigenvectors of a matrix X = H H' give a square root U; H is U turned by the orthogonal matrix
that makes it nonnegative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.errors import PmfError, RankError, SchemaError
from pmflib.solvers.pairwise import check_limits

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Up to so many rows all eigenvalues are computed: exact, and as fast.
_DENSE = 300
# A falling threshold counts as fallen below this.
_SETTLED = 1e-6


@dataclass(frozen=True, eq=False)
class Procrustes:
    """A nonnegative matrix near a turned square root.

    Parameters
    ----------
    nonnegative
        float64 of shape (n_rows, rank).
    rotation
        float64 of shape (rank, rank), orthogonal; ``root @ rotation`` is near ``nonnegative``.
    residuals
        Frobenius distance of the two after each iteration.
    converged
        Whether the distance settled before the limit of iterations.
    """

    nonnegative: FloatArray
    rotation: FloatArray
    residuals: tuple[float, ...]
    converged: bool


def root_of(matrix: FloatArray | csr_array, rank: int) -> FloatArray:
    """Square root of the best positive semidefinite approximation of a given rank.

    Parameters
    ----------
    matrix
        Symmetric, of shape (n, n), dense or sparse, finite.
    rank
        Columns of the root, in [1, n].

    Returns
    -------
    float64 of shape (n, rank), U with U U' nearest to ``matrix``: top eigenvectors by the root of
    their eigenvalues, largest first, a column of zeros for an eigenvalue that is not positive. The
    largest entry of each column is positive, so equal input gives equal output.

    Raises
    ------
    SchemaError
        If the matrix is not square.
    RankError
        If the rank is outside [1, n].
    """
    # SciPy takes a third of the time to load pmflib
    from scipy.linalg import eigh
    from scipy.sparse.linalg import eigsh

    n_rows = matrix.shape[0]
    if matrix.shape != (n_rows, n_rows):
        raise SchemaError(f"matrix has shape {matrix.shape}; pass a square one")
    if not 1 <= rank <= n_rows:
        raise RankError(f"rank is {rank}, outside [1, {n_rows}], the rows of the matrix")
    if n_rows <= _DENSE or 3 * rank > n_rows:
        dense = np.asarray(matrix if isinstance(matrix, np.ndarray) else matrix.toarray())
        values, vectors = eigh(dense, subset_by_index=(n_rows - rank, n_rows - 1))
    else:
        # A fixed start makes the Lanczos iteration repeatable.
        begin = np.cos(np.arange(n_rows, dtype=np.float64))
        values, vectors = eigsh(matrix, k=rank, which="LA", v0=begin)
    order = np.argsort(-values, kind="stable")
    root = vectors[:, order] * np.sqrt(np.maximum(values[order], 0.0))
    peaks = root[np.argmax(np.abs(root), axis=0), np.arange(rank)]
    return np.asarray(root * np.where(peaks < 0, -1.0, 1.0), np.float64)


def fit_procrustes(
    root: FloatArray,
    *,
    rng: np.random.Generator,
    n_starts: int = 10,
    threshold: float = 1e-6,
    decay: float | None = None,
    max_iter: int = 500,
    tol: float = 1e-6,
) -> Procrustes:
    """Turn a square root until it is as nearly nonnegative as can be.

    Parameters
    ----------
    root
        float64 of shape (n_rows, rank), as from `root_of`.
    rng
        Source of the starts after the first.
    n_starts
        Starts, at least 1: the identity, then random orthogonal matrices; the smallest distance
        wins.
    threshold
        Entries below it become 0: the shift of the rectifier, at least 0.
    decay
        None keeps the threshold; a number in (0, 1) makes it ``decay ** iteration`` instead, down
        to ``threshold``.
    max_iter, tol
        Limits per start: iterations, and the relative fall of the distance to stop at.

    Raises
    ------
    PmfError
        If a number is out of range or the root holds an entry that is not finite.

    References
    ----------
    Ibrahim and Fu (2021), Crowdsourcing via annotator co-occurrence imputation and provable
    symmetric nonnegative matrix factorization, ICML, Algorithm 2; Huang, Sidiropoulos and Swami
    (2014), IEEE Transactions on Signal Processing 62.
    """
    check_limits(max_iter, tol)
    if n_starts < 1 or not threshold >= 0 or not (decay is None or 0 < decay < 1):
        raise PmfError(
            f"n_starts is {n_starts}, threshold {threshold}, decay {decay}; give at least 1, at "
            "least 0, and None or a number in (0, 1)"
        )
    if root.ndim != 2 or not root.shape[1] or not np.isfinite(root).all():
        raise PmfError(f"root of shape {root.shape} must be (n_rows, rank) and finite")
    rank = root.shape[1]
    starts = [np.eye(rank)]
    for _ in range(n_starts - 1):
        starts.append(np.linalg.qr(rng.standard_normal((rank, rank)))[0])
    found = [_turn(root, start, threshold, decay, max_iter, tol) for start in starts]
    return min(found, key=lambda each: each.residuals[-1])


def _turn(
    root: FloatArray,
    rotation: FloatArray,
    threshold: float,
    decay: float | None,
    max_iter: int,
    tol: float,
) -> Procrustes:
    """Alternate between the rectifier and the best rotation."""
    scale = float(np.linalg.norm(root)) or 1.0
    # Columns have no sign of their own: a start whose columns point down would rectify to nothing.
    sums = (root @ rotation).sum(axis=0)
    rotation = rotation * np.where(sums < 0, -1.0, 1.0)
    residuals: list[float] = []
    converged = False
    while True:
        least = threshold if decay is None else max(threshold, decay ** (len(residuals) + 1))
        turned = root @ rotation
        nonnegative = np.where((turned >= least) & (turned > 0), turned, 0.0)
        residuals.append(float(np.linalg.norm(nonnegative - turned)))
        if len(residuals) > 1 and least <= max(threshold, _SETTLED):
            converged = residuals[-2] - residuals[-1] <= tol * scale
        if converged or len(residuals) > max_iter:
            break
        left, _, right = np.linalg.svd(root.T @ nonnegative)
        rotation = left @ right
    return Procrustes(nonnegative, rotation, tuple(residuals), converged)
