"""Non-negative least squares, and least squares over the probability simplex."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.constraints import FINITE, at_least, check, check_entries, check_shapes
from pmflib.base.errors import PmfError


def solve_nnls(gram: FloatArray, cross: FloatArray) -> FloatArray:
    """Minimise 1/2 tr(X'GX) - tr(X'C) over X >= 0.

    With G = W'W and C = W'B, this is min ||B - W X||_F without forming W. The active-set solution is exact: the
    gradient of every zero entry is non-negative and that of every other entry is zero, to 1e-10 of its own terms with
    the columns of W scaled to unit length.

    Parameters
    ----------
    gram
        float64 of shape (rank, rank), symmetric positive semidefinite; may be singular.
    cross
        float64 of shape (rank, n_rhs).

    Returns
    -------
    float64 of shape (rank, n_rhs), non-negative. A variable with a zero on the diagonal of ``gram`` (an empty column of
    W) is 0. If ``gram`` is singular and the minimiser is not unique, variables that depend on those already in use are
    left out, so the solution has few non-zeros and is reproducible.

    Raises
    ------
    PmfError
        If shapes do not match, an entry is not finite, or the diagonal contains a negative number.

    Notes
    -----
    Time about n_rhs * rank^3 / 3; memory for three matrices of shape (rank, n_rhs).

    References
    ----------
    Lawson and Hanson (1974), Solving Least Squares Problems, chapter 23; on the Gram matrix as in
    Bro and De Jong (1997), Journal of Chemometrics 11.
    """
    from pmflib.papers.kernels.nnls import solve_columns  # importing numba is slow

    diagonal = _check_normal_equations(gram, cross)
    rank = diagonal.size
    # With columns of length near 1, one tolerance suits all variables, however badly W is scaled; powers of two scale
    # without rounding.
    _, exponents = np.frexp(np.sqrt(diagonal))
    inverse = np.where(diagonal > 0, np.ldexp(1.0, -exponents), 0.0)
    unit_gram = gram * inverse[:, None] * inverse
    np.fill_diagonal(unit_gram, np.where(diagonal > 0, np.diagonal(unit_gram), 1.0))
    unit_cross = np.ascontiguousarray((cross * inverse[:, None]).T)
    solution = np.empty(unit_cross.shape)
    solve_columns(unit_gram, unit_cross, 20 * rank + 20, solution)
    return np.ascontiguousarray(solution.T) * inverse[:, None]


def _check_normal_equations(gram: FloatArray, cross: FloatArray) -> FloatArray:
    """Validate the normal equations and return the diagonal of the Gram matrix."""
    sizes = ("rank", "rank"), ("rank", "n_rhs")
    check_shapes("pass W'W and W'B", PmfError, gram=(gram, sizes[0]), cross=(cross, sizes[1]))
    check_entries(FINITE, gram=gram, cross=cross)
    diagonal = np.diagonal(gram).copy()
    check_entries(at_least(0, "that of W'W"), **{"diagonal of gram": diagonal})
    return diagonal


# Slopes and curvatures below this fraction of the scale of the data are rounding error.
_ROUNDING = 1e-13


@dataclass(frozen=True)
class SimplexSettings:
    """Settings of `solve_simplex_least_squares`."""

    least_pivot: float = 1e-5
    """Chosen: a direct solution is accepted if the smallest pivot of the Cholesky factor exceeds this fraction of the
    largest. This bounds the condition number by about its inverse square, 1e10, which leaves six of sixteen digits.
    """


_DEFAULT = SimplexSettings()


def project_simplex(v: FloatArray) -> FloatArray:
    """Project onto the probability simplex in Euclidean distance.

    Parameters
    ----------
    v
        float64 of shape (n,) or (n, n_columns), n >= 1; a matrix is projected column by column.

    Returns
    -------
    float64 of the same shape: non-negative, with columns that sum to 1.

    Raises
    ------
    PmfError
        If ``v`` is empty, has a different number of axes, or contains a non-finite entry.

    References
    ----------
    Held, Wolfe and Crowder (1974), Mathematical Programming 6.
    """
    if v.ndim not in (1, 2) or v.shape[0] == 0:
        raise PmfError(f"v has shape {v.shape}, not (n,) or (n, n_columns) with n >= 1")
    check_entries(FINITE, v=v)
    columns = v.reshape(v.shape[0], -1)
    # Entries 1 or more below the largest project to 0; clipping them keeps the sums exact.
    columns = np.maximum(columns - columns.max(axis=0), -1.0)
    descending = -np.sort(-columns, axis=0)
    excess = np.cumsum(descending, axis=0) - 1.0
    ranks = np.arange(1, v.shape[0] + 1)[:, None]
    kept = np.count_nonzero(descending * ranks > excess, axis=0)
    threshold = np.take_along_axis(excess, kept[None] - 1, axis=0) / kept
    projected = np.maximum(columns - threshold, 0.0)
    return np.asarray((projected / projected.sum(axis=0)).reshape(v.shape))


def solve_simplex_least_squares(
    gram: FloatArray, cross: FloatArray, *, settings: SimplexSettings = _DEFAULT
) -> FloatArray:
    """Minimise 1/2 x'Gx - c'x over the probability simplex.

    With G = W'W and c = W'b, this is min ||b - W x||. The solution by a primal active-set method is exact: each step
    adds the vertex of steepest descent, then moves to the minimum on the affine hull of the active vertices or to the
    boundary of the simplex.

    Parameters
    ----------
    gram
        float64 of shape (rank, rank), symmetric positive semidefinite; may be singular.
    cross
        float64 of shape (rank,); need not lie in the range of ``gram``.
    settings
        Settings of the method.

    Returns
    -------
    float64 of shape (rank,), non-negative, sums to 1. Among equally good vertices, the one with the lowest index enters
    first, and vertices that cannot reduce the loss never enter, so the solution for a singular ``gram`` is well defined
    and has few non-zeros.

    Raises
    ------
    PmfError
        If shapes do not match or an entry is not finite.

    References
    ----------
    Wolfe (1976), Finding the nearest point in a polytope, Mathematical Programming 11.
    """
    _check_quadratic(gram, cross)
    rank = cross.size
    scale = float(max(np.abs(gram).max(), np.abs(cross).max()))
    x = np.zeros(rank)
    if scale == 0.0:
        x[0] = 1.0
        return x
    gram, cross = gram / scale, cross / scale
    inside = _solve_inside(gram, cross, settings.least_pivot)
    if inside is not None:
        return inside
    start = int(np.argmin(0.5 * np.diagonal(gram) - cross))
    x[start] = 1.0
    passive = np.array([start])
    # Every step reduces the loss, so no active set recurs; the limit guards against rounding.
    for _ in range(20 * rank + 20):
        slopes = gram[:, passive] @ x[passive] - cross
        slopes -= slopes[passive] @ x[passive]
        slopes[passive] = np.inf
        entering = int(np.argmin(slopes))
        if slopes[entering] >= -_ROUNDING:
            break
        passive = _enter(gram, x, passive, entering, float(slopes[entering]))
        passive = _leave_bounds(gram, cross, x, passive)
    return np.asarray(x / x.sum())


def _solve_inside(gram: FloatArray, cross: FloatArray, least_pivot: float) -> FloatArray | None:
    """Return the minimum on the simplex's plane if it is unique and inside the simplex, otherwise None."""
    try:
        pivots = np.linalg.cholesky(gram).diagonal()
    except np.linalg.LinAlgError:
        return None
    if pivots.min() <= least_pivot * pivots.max():
        return None
    found = _solve_on_hull(gram, np.arange(cross.size), cross, 1.0)
    return np.asarray(found / found.sum()) if found.min() > 0 else None


def _enter(
    gram: FloatArray, x: FloatArray, passive: IntArray, entering: int, slope: float
) -> IntArray:
    """Move x along the flattest direction of the hull towards a new vertex; return the new active set."""
    direction = _solve_on_hull(gram, passive, -gram[passive, entering], -1.0)
    hull = np.append(passive, entering)
    direction = np.append(direction, 1.0)
    curvature = float(direction @ gram[hull[:, None], hull] @ direction)
    # In a flat direction only the boundary ends the step; it exists because the weights sum to 1.
    flat = curvature <= _ROUNDING * float(direction @ direction)
    return _step(x, hull, direction, np.inf if flat else -slope / curvature)


def _leave_bounds(
    gram: FloatArray, cross: FloatArray, x: FloatArray, passive: IntArray
) -> IntArray:
    """Move to the minimum on the hull, dropping entries that reach zero."""
    for _ in range(passive.size):
        direction = _solve_on_hull(gram, passive, cross[passive], 1.0) - x[passive]
        kept = _step(x, passive, direction, 1.0)
        if kept.size == passive.size:
            break
        passive = kept
    return passive


def _step(x: FloatArray, passive: IntArray, direction: FloatArray, length: float) -> IntArray:
    """Move x by at most ``length`` within the simplex; return the entries that remain positive."""
    falling = np.flatnonzero(direction < 0)
    steps = x[passive[falling]] / -direction[falling]
    blocking = int(np.argmin(steps)) if steps.size else -1
    blocked = blocking >= 0 and steps[blocking] <= length
    x[passive] += (steps[blocking] if blocked else length) * direction
    if blocked:
        x[passive[falling[blocking]]] = 0.0
    x[passive] = np.maximum(x[passive], 0.0)
    return passive[x[passive] > 0]


def _solve_on_hull(
    gram: FloatArray, passive: IntArray, cross: FloatArray, total: float
) -> FloatArray:
    """Minimise 1/2 y'Gy - c'y over the active entries with a fixed sum."""
    size = passive.size
    # The border is scaled to the size of the Gram matrix to improve the condition number.
    weight = float(np.abs(gram[passive, passive]).max()) or 1.0
    bordered = np.full((size + 1, size + 1), weight)
    bordered[:size, :size] = gram[passive[:, None], passive]
    bordered[size, size] = 0.0
    solved: FloatArray = np.linalg.solve(bordered, np.append(cross, weight * total))
    return solved[:size]


def _check_quadratic(gram: FloatArray, cross: FloatArray) -> None:
    """Check that a Gram matrix and a vector have matching shapes and finite entries."""
    sizes = ("rank",), ("rank", "rank")
    check_shapes("pass W'W and W'b", PmfError, cross=(cross, sizes[0]), gram=(gram, sizes[1]))
    check(at_least(1), rank=cross.size)
    check_entries(FINITE, gram=gram, cross=cross)
