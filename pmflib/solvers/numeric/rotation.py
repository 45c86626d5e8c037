"""Nonnegative square roots by Procrustes: the core of symmetric NMF.

The top eigenvectors of a matrix X = H H' give a square root U; H is U turned by the orthogonal matrix
that makes it nonnegative. Alternating projections need thousands of steps where H lies in a corner;
stepping too far towards it, and along the path walked so far, takes a hundred.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.errors import PmfError, RankError, SchemaError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Up to so many rows all eigenvalues are computed: exact, and as fast.
_DENSE = 300
# A rectified entry is moved so many times the way to zero.
_OVERSTEP = 4.0
# The distance must fall within so many steps.
_WINDOW = 20
# Tolerance that starts are compared by.
_COARSE = 1e-3


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
    return _scale(values, vectors)


def improve_root(matrix: FloatArray, root: FloatArray) -> FloatArray:
    """Bring a square root of a matrix nearer to `root_of` it, at a tenth of the cost.

    Parameters
    ----------
    matrix
        Symmetric, float64 of shape (n, n), finite.
    root
        float64 of shape (n, rank): that of a matrix near this one.

    Returns
    -------
    float64 of shape (n, rank), U with U U' nearest to ``matrix`` among those whose columns are combinations of those of
    the root and of the matrix times the root: never farther than the root itself.

    References
    ----------
    Knyazev (2001), SIAM Journal on Scientific Computing 23, without its third block: Rayleigh-Ritz on a basis and its
    image.
    """
    from scipy.linalg import eigh, qr

    rank = root.shape[1]
    scales = np.linalg.norm(root, axis=0)
    basis = root / np.where(scales > 0, scales, 1.0)
    basis = np.asarray(qr(np.hstack([basis, matrix @ basis]), mode="economic")[0])
    values, vectors = eigh(basis.T @ matrix @ basis)
    return _scale(values[-rank:], basis @ vectors[:, -rank:])


def _scale(values: FloatArray, vectors: FloatArray) -> FloatArray:
    """Eigenvectors by the root of their eigenvalues, largest first, the largest entry of each positive."""
    order = np.argsort(-values, kind="stable")
    root = vectors[:, order] * np.sqrt(np.maximum(values[order], 0.0))
    peaks = root[np.argmax(np.abs(root), axis=0), np.arange(root.shape[1])]
    return np.asarray(root * np.where(peaks < 0, -1.0, 1.0), np.float64)


def draw_rotations(rank: int, n_rotations: int, rng: np.random.Generator) -> list[FloatArray]:
    """Orthogonal matrices (rank, rank) to turn from: the identity, then random ones."""
    drawn = [np.linalg.qr(rng.standard_normal((rank, rank)))[0] for _ in range(n_rotations - 1)]
    return [np.eye(rank), *drawn]


def turn_nonnegative(
    root: FloatArray,
    *,
    rotations: Sequence[FloatArray] = (),
    hasten: bool = True,
    max_iter: int = 200,
    tol: float = 1e-5,
) -> tuple[FloatArray, tuple[float, ...]]:
    """Turn a square root until it is as nearly nonnegative as can be.

    Parameters
    ----------
    root
        float64 of shape (n_rows, rank), as from `root_of`.
    rotations
        Orthogonal starts of shape (rank, rank); none is the identity. Of several, the one that a coarse tolerance
        leaves nearest goes on.
    hasten
        Whether to step too far and with momentum; else the alternation is as published, for which other end points
        attract, and which needs many steps.
    max_iter
        Limit of steps of a start, at least 1.
    tol
        Stop when the distance falls by less than this share of the norm of the root in 20 steps.

    Returns
    -------
    nonnegative
        float64 of shape (n_rows, rank): the best turned root, rectified.
    residuals
        Distance of the turned root from the nonnegative matrices, Frobenius, at each step of the best start.

    Raises
    ------
    PmfError
        If the root is no matrix of finite entries, or max_iter is below 1.

    References
    ----------
    Ibrahim and Fu (2021), Crowdsourcing via annotator co-occurrence imputation and provable symmetric nonnegative
    matrix factorization, ICML, Algorithm 2, for the alternation; Nesterov (1983) and O'Donoghue and Candes (2015),
    Foundations of Computational Mathematics 15, for momentum that starts again whenever the distance rises.
    """
    if root.ndim != 2 or not root.shape[1] or not np.isfinite(root).all():
        raise PmfError(f"root of shape {root.shape} must be (n_rows, rank) and finite")
    if max_iter < 1:
        raise PmfError(f"max_iter is {max_iter}; give at least 1")
    begun: list[FloatArray] = [*rotations] or [np.eye(root.shape[1])]
    before: tuple[float, ...] = ()
    if len(begun) > 1:
        coarse = [_turn(root, each, hasten, max_iter, max(tol, _COARSE)) for each in begun]
        best, before = min(coarse, key=lambda each: min(each[1]))
        begun = [best]
    turned, residuals = _turn(root, begun[0], hasten, max_iter, tol)
    return np.maximum(root @ turned, 0.0), (*before, *residuals)


def _turn(
    root: FloatArray, rotation: FloatArray, hasten: bool, max_iter: int, tol: float
) -> tuple[FloatArray, tuple[float, ...]]:
    """Best rotation on the way from one, and the distances on the way."""
    # columns have no sign of their own: one that points down would rectify to nothing
    here = rotation * np.where((root @ rotation).sum(axis=0) < 0, -1.0, 1.0)
    ahead, pace, best = here, 1.0, here
    scale, stride = float(np.linalg.norm(root)), _OVERSTEP if hasten else 1.0
    residuals: list[float] = []
    for step in range(max_iter):
        residual = float(np.linalg.norm(np.minimum(root @ here, 0.0)))
        if not residuals or residual < min(residuals):
            best = here
        if residuals and residual > residuals[-1]:
            ahead, pace = here, 1.0
        residuals.append(residual)
        stalled = step >= _WINDOW and residuals[-1 - _WINDOW] - residual <= tol * scale
        if residual <= tol * scale or stalled:
            break
        turned = root @ ahead
        new = rotate(root.T @ (turned - stride * np.minimum(turned, 0.0)))
        faster = (1 + math.sqrt(1 + 4 * pace**2)) / 2 if hasten else 1.0
        # not quite orthogonal, which the next step mends: another decomposition gains nothing
        ahead = new + (pace - 1) / faster * (new - here)
        here, pace = new, faster
    return best, tuple(residuals)


def rotate(matrix: FloatArray) -> FloatArray:
    """Nearest orthogonal matrix."""
    left, _, right = np.linalg.svd(matrix)
    return np.asarray(left @ right)
