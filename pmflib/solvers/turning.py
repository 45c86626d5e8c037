"""Turning a square root of a matrix nonnegative, fast: projections with momentum.

The alternating projections of `fit_procrustes` need thousands of steps where the nonnegative root
lies in a corner; stepping too far towards it, and along the path walked so far, takes a hundred.
"""

from __future__ import annotations

import math

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.errors import PmfError

# A rectified entry is moved so many times the way to zero.
_OVERSTEP = 4.0
# The distance must fall within so many steps.
_WINDOW = 20


def turn_nonnegative(
    root: FloatArray,
    *,
    rotation: FloatArray | None = None,
    max_iter: int = 200,
    tol: float = 1e-5,
) -> tuple[FloatArray, tuple[float, ...]]:
    """Turn a square root until it is as nearly nonnegative as can be.

    Parameters
    ----------
    root
        float64 of shape (n_rows, rank), as from `root_of`.
    rotation
        Orthogonal start of shape (rank, rank); None is the identity.
    max_iter
        Limit of steps, at least 1.
    tol
        Stop when the distance falls by less than this share of the norm of the root in 20 steps.

    Returns
    -------
    nonnegative
        float64 of shape (n_rows, rank): the best turned root, rectified.
    residuals
        Distance of the turned root from the nonnegative matrices, Frobenius, at each step.

    Raises
    ------
    PmfError
        If the root is no matrix of finite entries, or max_iter is below 1.

    References
    ----------
    Ibrahim and Fu (2021), ICML, Algorithm 2, for the alternation; Nesterov (1983) and O'Donoghue and
    Candes (2015), Foundations of Computational Mathematics 15, for momentum that starts again
    whenever the distance rises.
    """
    if root.ndim != 2 or not root.shape[1] or not np.isfinite(root).all():
        raise PmfError(f"root of shape {root.shape} must be (n_rows, rank) and finite")
    if max_iter < 1:
        raise PmfError(f"max_iter is {max_iter}; give at least 1")
    here = np.eye(root.shape[1]) if rotation is None else rotation
    # columns have no sign of their own: one that points down would rectify to nothing
    here = here * np.where((root @ here).sum(axis=0) < 0, -1.0, 1.0)
    ahead, pace = here, 1.0
    scale = float(np.linalg.norm(root))
    residuals: list[float] = []
    best = np.maximum(root @ here, 0.0)
    for step in range(max_iter):
        turned = root @ ahead
        below = np.minimum(turned, 0.0)
        residual = float(np.linalg.norm(below))
        if not residuals or residual < min(residuals):
            best = turned - below
        if residuals and residual > residuals[-1]:
            pace = 1.0
        residuals.append(residual)
        stalled = step >= _WINDOW and residuals[-1 - _WINDOW] - residual <= tol * scale
        if residual <= tol * scale or stalled:
            break
        new = _rotate(root.T @ (turned - _OVERSTEP * below))
        faster = (1 + math.sqrt(1 + 4 * pace**2)) / 2
        # not quite orthogonal, which the next step mends: another decomposition gains nothing
        ahead = new + (pace - 1) / faster * (new - here)
        here, pace = new, faster
    return best, tuple(residuals)


def _rotate(matrix: FloatArray) -> FloatArray:
    """Nearest orthogonal matrix."""
    left, _, right = np.linalg.svd(matrix)
    return np.asarray(left @ right)
