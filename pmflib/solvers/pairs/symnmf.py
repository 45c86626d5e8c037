"""Symmetric NMF by Procrustes: a nonnegative square root of the matrix of all pairs.

With every variable's factor stacked in A, the pairwise marginals are X = H H', H = A D(prior)^(1/2).
The top eigenvectors give a square root U of X; H is U turned by the orthogonal matrix that makes
it nonnegative. Diagonal blocks of X and pairs never observed together are imputed first.
"""

from __future__ import annotations

import numpy as np

from pmflib.arrays import BoolArray, FloatArray, IntArray, Parameters
from pmflib.errors import RankError
from pmflib.solvers.numeric.rotation import (
    draw_rotations,
    improve_root,
    root_of,
    turn_nonnegative,
)
from pmflib.solvers.pairs.checks import (
    FLOOR,
    check_limits,
    check_pairs,
    check_rank,
    check_start,
    normalise_blocks,
    read_singles,
    spread_pairs,
)
from pmflib.solvers.result import SolverResult

# Limit of the steps of a rotation.
_TURNS = 500
# Singular values below this share of the largest are not inverted.
_CUT = 1e-8


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
    tol: float = 1e-5,
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
        Rotations tried, at least 1.
    max_iter
        Limit of the rounds of imputation.
    tol
        Relative change of the imputed entries to stop at, and of the distance of a rotation.

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
    As for `turn_nonnegative`; Mazumder, Hastie and Tibshirani (2010), Journal of Machine Learning
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
    rotations = draw_rotations(rank, n_starts, rng)
    nonnegative, _ = turn_nonnegative(root, rotations=rotations, max_iter=_TURNS, tol=tol)
    prior, factors = _read_model(nonnegative, offsets, singles)
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
    root = root_of(filled, rank)
    while True:
        model = root @ root.T
        history.append(float(np.sqrt(((model - filled)[known] ** 2).sum() / n_known)))
        if converged or len(history) > max_iter:
            return root, tuple(history), converged
        change = float(np.linalg.norm(model[unknown] - filled[unknown]))
        filled[unknown] = model[unknown]
        root = improve_root(filled, root)
        converged = change <= tol * float(np.linalg.norm(filled))


def _read_model(nonnegative: FloatArray, offsets: IntArray, singles: FloatArray) -> Parameters:
    """Factors are the blocks with columns of sum 1; column sums are the root of the prior."""
    factors = normalise_blocks(nonnegative, offsets, singles[:, None])
    sums = np.add.reduceat(nonnegative, offsets[:-1], axis=0)
    prior = (sums**2).mean(axis=0)
    total = prior.sum()
    rank = prior.size
    return (prior / total if total > 0 else np.full(rank, 1.0 / rank)), factors
