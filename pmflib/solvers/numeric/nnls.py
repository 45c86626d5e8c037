"""Nonnegative least squares with one Gram matrix and many right-hand sides."""

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.errors import PmfError


def solve_nnls(gram: FloatArray, cross: FloatArray) -> FloatArray:
    """Minimise 1/2 tr(X'GX) - tr(X'C) over X >= 0.

    With G = W'W and C = W'B that is min ||B - W X||_F, without W. Exact by active sets: the
    gradient of every entry that is zero is nonnegative and that of every other entry is zero, to
    1e-10 of its own terms with the columns of W scaled to unit length.

    Parameters
    ----------
    gram
        float64 of shape (rank, rank), symmetric positive semidefinite; may be singular.
    cross
        float64 of shape (rank, n_rhs).

    Returns
    -------
    float64 of shape (rank, n_rhs), nonnegative. A variable with a zero on the diagonal of ``gram``
    (an empty column of W) is 0. Where ``gram`` is singular and the minimiser not unique, a variable
    that depends on those already in use stays out, so the answer has few nonzeros and is the
    same in every run.

    Raises
    ------
    PmfError
        If shapes do not fit, or an entry is not finite, or the diagonal holds a negative number.

    Notes
    -----
    Time about n_rhs * rank^3 / 3, memory three matrices of (rank, n_rhs).

    References
    ----------
    Lawson and Hanson (1974), Solving Least Squares Problems, chapter 23; on the Gram matrix as in
    Bro and De Jong (1997), Journal of Chemometrics 11.
    """
    from pmflib.kernels.nnls import solve_columns  # Numba loads on first use

    diagonal = _check_normal_equations(gram, cross)
    rank = diagonal.size
    # Columns of length near 1 make one tolerance fit all variables, however badly scaled W is;
    # powers of two scale without rounding.
    _, exponents = np.frexp(np.sqrt(diagonal))
    inverse = np.where(diagonal > 0, np.ldexp(1.0, -exponents), 0.0)
    unit_gram = gram * inverse[:, None] * inverse
    np.fill_diagonal(unit_gram, np.where(diagonal > 0, np.diagonal(unit_gram), 1.0))
    unit_cross = np.ascontiguousarray((cross * inverse[:, None]).T)
    solution = np.empty(unit_cross.shape)
    solve_columns(unit_gram, unit_cross, 20 * rank + 20, solution)
    return np.ascontiguousarray(solution.T) * inverse[:, None]


def _check_normal_equations(gram: FloatArray, cross: FloatArray) -> FloatArray:
    """Return the diagonal of a Gram matrix that fits its right-hand sides."""
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1]:
        raise PmfError(f"gram has shape {gram.shape}, not (rank, rank); pass W'W")
    if cross.ndim != 2 or cross.shape[0] != gram.shape[0]:
        raise PmfError(
            f"cross has shape {cross.shape}, not ({gram.shape[0]}, n_rhs); pass W'B, one column "
            "for each right-hand side"
        )
    for name, array in (("gram", gram), ("cross", cross)):
        if not np.isfinite(array).all():
            raise PmfError(f"{name} holds {_first_not_finite(array)}; every entry must be finite")
    diagonal = np.diagonal(gram).copy()
    if (diagonal < 0).any():
        at = int(np.argmin(diagonal))
        raise PmfError(f"gram[{at}, {at}] is {diagonal[at]}, below 0; pass W'W")
    return diagonal


def _first_not_finite(array: FloatArray) -> float:
    """Return the first entry that is NaN or infinite."""
    return float(array[~np.isfinite(array)][0])
