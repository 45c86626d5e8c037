"""Symmetric NMF by Procrustes: a nonnegative square root of the matrix of all pairs.

With every variable's factor stacked in A, the pairwise marginals are X = H H', H = A D(prior)^(1/2).
The top eigenvectors give a square root U of X; H is U turned by the orthogonal matrix that makes
it nonnegative. Diagonal blocks of X and pairs never observed together are imputed first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array
from scipy.sparse.linalg import eigsh

from pmflib.arrays import BoolArray, FloatArray, IntArray
from pmflib.errors import PmfError, RankError, SchemaError
from pmflib.solvers.pairwise import (
    FLOOR,
    Parameters,
    check_limits,
    check_pairs,
    check_rank,
    check_start,
    normalise_blocks,
    read_singles,
    spread_pairs,
)
from pmflib.solvers.result import SolverResult

# Up to so many rows all eigenvalues are computed: exact, and as fast.
_DENSE = 300
# Singular values below this share of the largest are not inverted.
_CUT = 1e-8
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
    n_rows = matrix.shape[0]
    if matrix.shape != (n_rows, n_rows):
        raise SchemaError(f"matrix has shape {matrix.shape}; pass a square one")
    if not 1 <= rank <= n_rows:
        raise RankError(f"rank is {rank}, outside [1, {n_rows}], the rows of the matrix")
    if n_rows <= _DENSE or 3 * rank > n_rows:
        dense = np.asarray(matrix.toarray() if isinstance(matrix, csr_array) else matrix)
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


def fit_symnmf(
    marginals: FloatArray,
    offsets: IntArray,
    observed: BoolArray,
    *,
    rank: int,
    rng: np.random.Generator,
    initial: Parameters | None = None,
    n_starts: int = 10,
    max_iter: int = 100,
    tol: float = 1e-6,
) -> SolverResult:
    """Fit prior and factors by symmetric NMF of the matrix of all pairs.

    Parameters
    ----------
    marginals, offsets, observed
        As for `fit_spa`.
    rank
        Latent states, in [1, n_levels].
    rng
        Source of the rotations that are tried.
    initial
        Prior and factors whose model imputes what was not observed, to begin with; None imputes by
        pairs with other variables.
    n_starts
        Rotations tried.
    max_iter, tol
        Of the imputation: rounds, and the relative change of the imputed entries to stop at.

    Returns
    -------
    The fit. ``loss_history`` holds the root mean square difference between the observed marginals
    and the imputed matrix of the given rank after each round; ``n_iter`` counts the rounds.

    Raises
    ------
    SchemaError, PmfError, RankError
        If the arrays do not fit each other or a number is out of range.

    Notes
    -----
    The imputation is refined by replacing imputed entries with those of the best approximation
    of the given rank until they settle, which never raises the loss. A variable without an observed
    pair gets its single marginal in every state.

    References
    ----------
    As for `fit_procrustes`; Mazumder, Hastie and Tibshirani (2010), Journal of Machine Learning
    Research 11, for the refinement.
    """
    check_rank(rank)
    check_limits(max_iter, tol)
    check_pairs(marginals, offsets, observed)
    n_levels = int(offsets[-1])
    if rank > n_levels:
        raise RankError(f"rank is {rank}, above {n_levels}, the levels of all variables; lower it")
    singles = read_singles(marginals, offsets)
    known = spread_pairs(observed, offsets)
    if rank == 1 or not observed.any():
        factors = np.repeat(singles[:, None], rank, axis=1)
        return SolverResult(np.full(rank, 1.0 / rank), factors, (0.0,), 0, True)
    if initial is None:
        filled = impute_pairs(marginals, offsets, observed, rank=rank)
    else:
        check_start(initial, n_levels)
        filled = np.where(known, marginals, (initial[1] * initial[0]) @ initial[1].T)
    root, history, converged = _refine(filled, known, rank, max_iter, tol)
    turned = fit_procrustes(root, rng=rng, n_starts=n_starts)
    prior, factors = _read_model(turned.nonnegative, offsets, singles)
    lone = np.repeat(~observed.any(axis=1), np.diff(offsets))
    factors[lone] = singles[lone, None]
    return SolverResult(prior, factors, history, len(history) - 1, converged)


def impute_pairs(
    marginals: FloatArray, offsets: IntArray, observed: BoolArray, *, rank: int
) -> FloatArray:
    """Fill diagonal blocks and pairs never observed, through the pairs that were.

    Parameters
    ----------
    marginals, offsets, observed
        As for `fit_spa`.
    rank
        Latent states, at least 1.

    Returns
    -------
    float64 of shape (n_levels, n_levels), symmetric, nonnegative: observed pairs as they are. An
    unobserved pair is filled as if independent. Then, with the variables dealt to three groups,
    the diagonal blocks of group M are those of X[M, R] pinv(X[L, R]) X[L, M], where L and R are the
    other two and the inverse has the given rank at most, scaled to sum 1. Of two variables each is
    taken to tell the state: its block is diagonal.

    References
    ----------
    Ibrahim and Fu (2021), ICML, section 3.1, with groups of variables in place of single annotators
    so that the rank may exceed the levels of a variable.
    """
    singles = read_singles(marginals, offsets)
    filled = np.where(spread_pairs(observed, offsets), marginals, np.outer(singles, singles))
    owners = np.repeat(np.arange(observed.shape[0]), np.diff(offsets))
    own_block = owners[:, None] == owners
    answer = np.where(own_block, np.diag(singles), filled)
    groups = [np.flatnonzero(owners % 3 == group) for group in range(3)]
    if not all(group.size for group in groups):
        return answer
    for _ in range(3):
        mine, near, far = groups
        bridge = _invert(filled[np.ix_(near, far)], rank)
        cells = filled[np.ix_(mine, far)] @ bridge @ filled[np.ix_(near, mine)]
        cells = np.where(own_block[np.ix_(mine, mine)], np.maximum(cells + cells.T, 0.0), 0.0)
        totals = cells.sum(axis=1)
        by_variable = np.bincount(owners[mine], totals, observed.shape[0])[owners[mine]]
        empty = (by_variable <= FLOOR)[:, None]
        blocks = np.where(
            empty, np.diag(singles[mine]), cells / np.maximum(by_variable, FLOOR)[:, None]
        )
        place = np.ix_(mine, mine)
        answer[place] = np.where(own_block[place], blocks, answer[place])
        groups = [*groups[1:], groups[0]]
    return answer


def _invert(matrix: FloatArray, rank: int) -> FloatArray:
    """Pseudo-inverse of the best approximation of a rank."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    kept = (values > _CUT * values.max(initial=0.0)) & (np.arange(values.size) < rank)
    return np.asarray((right[kept].T / values[kept]) @ left[:, kept].T)


def _refine(
    filled: FloatArray, known: BoolArray, rank: int, max_iter: int, tol: float
) -> tuple[FloatArray, tuple[float, ...], bool]:
    """Replace imputed entries by those of the low-rank approximation until they settle."""
    filled = filled.copy()
    n_known = int(known.sum())
    unknown = ~known
    history: list[float] = []
    converged = False
    while True:
        root = root_of(filled, rank)
        model = root @ root.T
        history.append(float(np.sqrt(((model - filled)[known] ** 2).sum() / n_known)))
        if converged or len(history) > max_iter:
            return root, tuple(history), converged
        change = float(np.linalg.norm(model[unknown] - filled[unknown]))
        filled[unknown] = model[unknown]
        converged = change <= tol * float(np.linalg.norm(filled))


def _read_model(nonnegative: FloatArray, offsets: IntArray, singles: FloatArray) -> Parameters:
    """Factors are the blocks with columns of sum 1; column sums are the root of the prior."""
    factors = normalise_blocks(nonnegative, offsets, singles[:, None])
    sums = np.add.reduceat(nonnegative, offsets[:-1], axis=0)
    prior = (sums**2).mean(axis=0)
    total = prior.sum()
    rank = prior.size
    return (prior / total if total > 0 else np.full(rank, 1.0 / rank)), factors
