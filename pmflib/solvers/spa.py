"""CNMF-SPA: factors read off the most extreme columns of one large nonnegative matrix.

The variables are split in two sides; the pairwise marginals across make the matrix
X = W H' with W the factors of the first side, stacked, and H' = D(prior) times those of the second.
Where every latent state has a level that (nearly) gives it away, W stands among X's columns.
"""

from collections.abc import Iterator

import numpy as np
from scipy.special import rel_entr

from pmflib.arrays import BoolArray, FloatArray, IntArray
from pmflib.errors import PmfError, RankError, SchemaError
from pmflib.solvers.nnls import solve_nnls
from pmflib.solvers.result import SolverResult
from pmflib.solvers.simplex import solve_simplex_least_squares

# A residual below this share of the largest column is rounding: the columns span no more.
_SPAN = 1e-10
# Squared norms this close, relatively, are a tie.
_TIE = 1e-6
# Model probabilities below are taken as this much in the divergence, which stays finite.
_FLOOR = 1e-12


def select_anchors(matrix: FloatArray, rank: int) -> IntArray:
    """Pick the columns whose l1-scaled hull holds all others, by successive projection.

    Parameters
    ----------
    matrix
        float64 of shape (n_rows, n_columns), nonnegative and finite.
    rank
        Columns to pick, at least 1.

    Returns
    -------
    int64 of shape (rank,), column indices in the order of choice. A column without mass is never
    chosen. Of residual norms within 1e-6 (squared, relative) the column of larger original norm
    wins, then the first.

    Raises
    ------
    PmfError
        If ``matrix`` is not two-dimensional or holds a negative or not finite entry.
    RankError
        If ``rank`` is below 1 or above the numerical rank of the columns.

    Notes
    -----
    Time n_rows * n_columns * rank, memory one copy of the matrix.

    References
    ----------
    Araújo et al. (2001), Chemometrics and Intelligent Laboratory Systems 57; Gillis and Vavasis
    (2014), IEEE PAMI 36.
    """
    if matrix.ndim != 2 or not np.isfinite(matrix).all() or (matrix < 0).any():
        raise PmfError(
            f"matrix of shape {matrix.shape} must be two-dimensional, finite and nonnegative"
        )
    if rank < 1:
        raise RankError(f"rank is {rank}, below 1; ask for at least one column")
    mass = matrix.sum(axis=0)
    residual = matrix / np.where(mass > 0, mass, 1.0)
    original = np.einsum("ij,ij->j", residual, residual)
    norms = original.copy()
    largest = fresh = float(original.max(initial=0.0))
    basis = np.empty((rank, matrix.shape[0]))
    anchors = np.empty(rank, np.int64)
    for step in range(rank):
        if norms.max(initial=0.0) <= 1e-6 * fresh:
            # The updates have lost their digits to cancellation: measure once again.
            residual -= basis[:step].T @ (basis[:step] @ residual)
            norms = np.einsum("ij,ij->j", residual, residual)
            fresh = float(norms.max(initial=0.0))
        top = norms.max(initial=0.0)
        if top <= _SPAN**2 * largest:
            raise RankError(
                f"rank is {rank}, above the numerical rank {step} of the matrix "
                f"(n_columns {matrix.shape[1]}); lower rank to {step} or split the variables otherwise"
            )
        tied = np.flatnonzero(norms >= (1.0 - _TIE) * top)
        anchors[step] = tied[np.argmax(original[tied])]
        direction = residual[:, anchors[step]].copy()
        for _ in range(2):
            direction -= (basis[:step] @ direction) @ basis[:step]
        basis[step] = direction / np.linalg.norm(direction)
        norms -= (basis[step] @ residual) ** 2
        norms[anchors[: step + 1]] = 0.0
    return anchors
