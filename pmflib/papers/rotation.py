"""Non-negative square roots by rotation: the core of symmetric NMF.

The top eigenvectors of a matrix X = H H' give a square root U. H is U rotated by the orthogonal matrix that makes it
non-negative; for a known H, that matrix solves a Procrustes problem. Plain alternating projections need thousands of
steps if H lies in a corner; with overshooting and momentum a hundred are enough. A shifted ReLU in place of the
projection makes sparse factors converge in a few steps (`alternate_shifted`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from pmflib.base.arrays import FloatArray
from pmflib.base.constraints import FINITE, Interval, at_least, check, check_entries, check_shapes
from pmflib.base.errors import PmfError, RankError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Largest number of rows for which all eigenvalues are computed: exact, and as fast on common machines.
_DENSE_ROWS = 300


@dataclass(frozen=True)
class RotationSettings:
    """Settings of `rotate_nonnegative`."""

    overshoot: float = 4.0
    """Factor by which a negative entry is moved towards zero; 1 is the plain projection. Measured on square
    roots of 12 noisy models of rank 6, with momentum: 74 steps on average, 119 with a factor of 1, 65 with 6; 8 does
    not converge.
    """
    momentum: bool = True
    """Whether to add Nesterov (1983) momentum; the plain alternation does not, and takes 554 steps on the same square
    roots.
    """
    window: int = 20
    """Chosen: number of steps within which the distance must decrease."""
    coarse_tol: float = 1e-3
    """Chosen: tolerance to which several starts are iterated; only the best of them continues."""


ACCELERATED = RotationSettings()
"""Settings with overshooting and momentum."""
PLAIN = RotationSettings(overshoot=1.0, momentum=False)
"""The alternation of Huang, Sidiropoulos and Swami (2014): it needs more steps and may end at different points."""


def root_of(
    matrix: FloatArray | csr_array, rank: int, *, dense_rows: int = _DENSE_ROWS
) -> FloatArray:
    """Compute the square root of the best positive semidefinite approximation of a given rank.

    Parameters
    ----------
    matrix
        Symmetric, of shape (n, n), dense or sparse, finite.
    rank
        Number of columns of the root, in [1, n].
    dense_rows
        Number of rows up to which all eigenvalues are computed; for larger matrices an iterative solver is used.

    Returns
    -------
    float64 of shape (n, rank), U with U U' nearest to ``matrix``: top eigenvectors times the square roots of their
    eigenvalues, largest first, with a column of zeros for an eigenvalue that is not positive. The largest entry of each
    column is positive, so equal input gives equal output.

    Raises
    ------
    SchemaError
        If the matrix is not square.
    RankError
        If the rank is outside [1, n].
    """
    # importing SciPy takes a third of the time of importing pmflib
    from scipy.linalg import eigh
    from scipy.sparse.linalg import eigsh

    n_rows = matrix.shape[0]
    check_shapes("", matrix=(matrix, ("n_rows", "n_rows")))
    check(Interval(1, n_rows, hint="the rows of the matrix"), RankError, rank=rank)
    if n_rows <= dense_rows or 3 * rank > n_rows:
        dense = np.asarray(matrix if isinstance(matrix, np.ndarray) else matrix.toarray())
        values, vectors = eigh(dense, subset_by_index=(n_rows - rank, n_rows - 1))
    else:
        # A fixed starting vector makes the Lanczos iteration reproducible.
        first = np.cos(np.arange(n_rows, dtype=np.float64))
        values, vectors = eigsh(matrix, k=rank, which="LA", v0=first)
    return _scale(values, vectors)


def improve_root(matrix: FloatArray, root: FloatArray) -> FloatArray:
    """Improve a square root of a matrix towards `root_of`, at a tenth of the cost.

    Parameters
    ----------
    matrix
        Symmetric, float64 of shape (n, n), finite.
    root
        float64 of shape (n, rank): square root of a similar matrix.

    Returns
    -------
    float64 of shape (n, rank), U with U U' nearest to ``matrix`` among matrices whose columns are combinations of those
    of the root and of the matrix times the root; never farther than the root itself.

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
    """Scale eigenvectors by the square roots of their eigenvalues, largest first, with positive largest entries."""
    order = np.argsort(-values, kind="stable")
    root = vectors[:, order] * np.sqrt(np.maximum(values[order], 0.0))
    peaks = root[np.argmax(np.abs(root), axis=0), np.arange(root.shape[1])]
    return np.asarray(root * np.where(peaks < 0, -1.0, 1.0), np.float64)


def draw_rotations(rank: int, n_rotations: int, rng: np.random.Generator) -> list[FloatArray]:
    """Draw orthogonal matrices (rank, rank) to start from: the identity, then random ones."""
    rotations = [np.linalg.qr(rng.standard_normal((rank, rank)))[0] for _ in range(n_rotations - 1)]
    return [np.eye(rank), *rotations]


def rotate_nonnegative(
    root: FloatArray,
    *,
    rotations: Sequence[FloatArray] = (),
    settings: RotationSettings = ACCELERATED,
    max_iter: int = 200,
    tol: float = 1e-5,
) -> tuple[FloatArray, tuple[float, ...]]:
    """Rotate a square root to be as non-negative as possible.

    Parameters
    ----------
    root
        float64 of shape (n_rows, rank), from `root_of`.
    rotations
        Orthogonal starting matrices of shape (rank, rank); by default the identity. Of several, the one nearest to
        non-negative at a coarse tolerance continues.
    settings
        Settings of the method: ``ACCELERATED``, or ``PLAIN``, which needs many steps.
    max_iter
        Maximum number of steps per start, at least 1.
    tol
        Stop when the distance decreases by less than this fraction of the norm of the root in ``settings.window``
        steps.

    Returns
    -------
    nonnegative
        float64 of shape (n_rows, rank): the best rotated root, rectified.
    residuals
        Frobenius distance of the rotated root from the non-negative matrices at each step of the best start.

    Raises
    ------
    PmfError
        If the root is not a matrix of finite entries, or max_iter is below 1.

    References
    ----------
    Huang, Sidiropoulos and Swami (2014), IEEE Transactions on Signal Processing 62, for the alternation, which Ibrahim
    and Fu (2021), ICML, state as problem (12); Nesterov (1983) and O'Donoghue and Candes (2015), Foundations of
    Computational Mathematics 15, for momentum that starts again whenever the distance rises.
    """
    check_shapes("", PmfError, root=(root, ("n_rows", "rank")))
    check(at_least(1), rank=root.shape[1])
    check_entries(FINITE, root=root)
    check(at_least(1), max_iter=max_iter)
    starts: list[FloatArray] = [*rotations] or [np.eye(root.shape[1])]
    coarse_residuals: tuple[float, ...] = ()
    if len(starts) > 1:
        coarse_tol = max(tol, settings.coarse_tol)
        coarse = [_rotate(root, start, settings, max_iter, coarse_tol) for start in starts]
        best, coarse_residuals = min(coarse, key=lambda found: min(found[1]))
        starts = [best]
    rotation, residuals = _rotate(root, starts[0], settings, max_iter, tol)
    return np.maximum(root @ rotation, 0.0), (*coarse_residuals, *residuals)


def _rotate(
    root: FloatArray, rotation: FloatArray, settings: RotationSettings, max_iter: int, tol: float
) -> tuple[FloatArray, tuple[float, ...]]:
    """Return the best rotation reached from a start, and the distances along the way."""
    # the sign of a column is arbitrary: a negative column would become zero
    current = rotation * np.where((root @ rotation).sum(axis=0) < 0, -1.0, 1.0)
    extrapolated, momentum, best = current, 1.0, current
    scale = float(np.linalg.norm(root))
    residuals: list[float] = []
    for step in range(max_iter):
        residual = float(np.linalg.norm(np.minimum(root @ current, 0.0)))
        if not residuals or residual < min(residuals):
            best = current
        if residuals and residual > residuals[-1]:
            extrapolated, momentum = current, 1.0
        residuals.append(residual)
        window = settings.window
        stalled = step >= window and residuals[-1 - window] - residual <= tol * scale
        if residual <= tol * scale or stalled:
            break
        rotated = root @ extrapolated
        target = rotated - settings.overshoot * np.minimum(rotated, 0.0)
        new = find_nearest_rotation(root.T @ target)
        new_momentum = (1 + math.sqrt(1 + 4 * momentum**2)) / 2 if settings.momentum else 1.0
        # not exactly orthogonal, which the next step corrects; a further decomposition gains nothing
        extrapolated = new + (momentum - 1) / new_momentum * (new - current)
        current, momentum = new, new_momentum
    return best, tuple(residuals)


def rotate_shifted(
    root: FloatArray,
    *,
    shift: float = 1e-6,
    shift_decay: float = 1.0,
    max_iter: int = 500,
    tol: float = 1e-6,
) -> tuple[FloatArray, tuple[float, ...]]:
    """Rotate a square root to a non-negative matrix by the published alternation with a shifted ReLU.

    Parameters
    ----------
    root
        float64 of shape (n_rows, rank), from `root_of`.
    shift
        Threshold of the first step, >= 0: entries below it become 0. 0 with the default decay is the plain alternation.
    shift_decay
        Factor by which the threshold falls in each step, in (0, 1]. The published experiments on data keep it at 1e-6;
        those on convergence take psi^(t + 1) at step t, which is ``shift=psi, shift_decay=psi``.
    max_iter
        Maximum number of steps, at least 1.
    tol
        Stop when the cost changes by at most this fraction in a step, as published.

    Returns
    -------
    nonnegative
        float64 of shape (n_rows, rank): H of the last step.
    costs
        Squared Frobenius distance of H from the rotated root before each step's rotation.

    References
    ----------
    Ibrahim and Fu (2021), ICML, equation (13) from Q = I; supplement C for the thresholds and the rule for stopping.
    Theorem 3 shows linear convergence for sparse H from a rotation near the right one.
    """
    costs: list[float] = []
    nonnegative = root
    shifts = (shift * shift_decay**step for step in range(max_iter))
    for nonnegative, rotation in alternate_shifted(root, shifts):
        costs.append(float(np.linalg.norm(nonnegative - root @ rotation) ** 2))
        # nothing has been rotated yet while all entries are below the threshold
        if nonnegative.any() and any(abs(b - a) <= tol * a for a, b in pairwise(costs[-2:])):
            break
    return nonnegative, tuple(costs)


def alternate_shifted(
    root: FloatArray, shifts: Iterable[float]
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield H and Q after each step of the alternation with a shifted ReLU, from Q = I; see `rotate_shifted`."""
    rotation = np.eye(root.shape[1])
    for shift in shifts:
        rotated = root @ rotation
        nonnegative = np.where(rotated >= shift, np.maximum(rotated, 0.0), 0.0)
        rotation = find_nearest_rotation(root.T @ nonnegative)
        yield nonnegative, rotation


def find_nearest_rotation(matrix: FloatArray) -> FloatArray:
    """Return the orthogonal matrix nearest to a square matrix in the Frobenius norm (Procrustes problem)."""
    left, _, right = np.linalg.svd(matrix)
    return np.asarray(left @ right)
