"""Symmetric NMF by Procrustes rotation: a non-negative square root of the matrix of all pairs.

With the factors of all variables stacked in A, the pairwise marginals are X = H H', where H = A D(prior)^(1/2). The top
eigenvectors give a square root U of X, and H is U rotated by the orthogonal matrix that makes it non-negative. Diagonal
blocks of X and unobserved pairs are imputed first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pmflib.base.arrays import (
    FLOOR,
    BoolArray,
    FloatArray,
    IntArray,
    Parameters,
    list_owners,
    normalise_blocks,
    spread_pairs,
    sum_blocks,
)
from pmflib.base.constraints import Interval, check
from pmflib.base.errors import RankError
from pmflib.base.pseudo_counts import SolverResult, check_limits, check_rank, check_start
from pmflib.papers.pair_matrix import check_pairs, find_isolated, read_singles
from pmflib.papers.rotation import (
    draw_rotations,
    improve_root,
    root_of,
    rotate_nonnegative,
    rotate_shifted,
)

Unobserved = Literal["refine", "independent", "zero"]
"""What stands for an unobserved pair: the low-rank approximation of all pairs, the product of the single marginals, or
zeros."""


@dataclass(frozen=True)
class SymnmfSettings:
    """Settings of `fit_symnmf` and `impute_pairs`."""

    unobserved: Unobserved = "refine"
    """What stands for an unobserved pair. Diagonal blocks are imputed; only "refine" improves them and unobserved pairs
    in rounds.
    """
    shift: float | None = None
    """Threshold of the first step of the published alternation with a shifted ReLU; None rotates with overshooting and
    momentum, from several starts. See `pmflib.papers.rotation.rotate_shifted`.
    """
    shift_decay: float = 1.0
    """Factor by which the threshold falls in each step."""
    rotation_steps: int = 500
    """Chosen: maximum number of steps of a rotation; a hundred are typical; see `rotate_nonnegative`."""
    least_singular_value: float = 1e-8
    """Singular values at or below this fraction of the largest are rounding error and not inverted."""


_DEFAULT = SymnmfSettings()


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
    settings: SymnmfSettings = _DEFAULT,
) -> SolverResult:
    """Fit the prior and factors by symmetric NMF of the matrix of all pairs.

    Parameters
    ----------
    marginals, offsets, observed
        As for `fit_spa`.
    rank
        Number of latent states, in [1, n_levels].
    rng
        Random generator for the starting rotations.
    initial
        Prior and factors whose model provides the initial imputation; None imputes from pairs with other variables.
    n_starts
        Number of starting rotations, at least 1.
    max_iter
        Maximum number of imputation rounds.
    tol
        Tolerance for the relative change of imputed entries and for the distance of a rotation.
    settings
        Settings of the method.

    Returns
    -------
    The fit. ``loss_history`` contains the root mean square difference between the observed marginals and the low-rank
    approximation after each round; ``n_iter`` is the number of rounds.

    Raises
    ------
    SchemaError, PmfError, RankError
        If arrays are inconsistent or a number is out of range.

    Notes
    -----
    Imputed entries are repeatedly replaced by those of the best approximation of the given rank until they converge,
    which never increases the loss. A variable without an observed pair gets its single marginal in every state.

    References
    ----------
    As for `rotate_nonnegative`, and for `rotate_shifted` with a threshold; Mazumder, Hastie and Tibshirani (2010),
    Journal of Machine Learning Research 11, for the refinement.
    """
    check_rank(rank)
    check_limits(max_iter, tol)
    check_pairs(marginals, offsets, observed)
    n_levels = int(offsets[-1])
    check(Interval(1, n_levels, hint="the number of all levels"), RankError, rank=rank)
    singles = read_singles(marginals, offsets)
    known = spread_pairs(observed, offsets)
    if rank == 1 or not observed.any():
        factors = np.repeat(singles[:, None], rank, axis=1)
        return SolverResult(np.full(rank, 1.0 / rank), factors, (0.0,), 0, True)
    if initial is None:
        filled = impute_pairs(marginals, offsets, observed, rank=rank, settings=settings)
    else:
        check_start(initial, n_levels)
        filled = np.where(known, marginals, (initial[1] * initial[0]) @ initial[1].T)
    refines = settings.unobserved == "refine"
    if settings.unobserved == "zero":
        own_block = spread_pairs(np.eye(len(observed), dtype=np.bool_), offsets)
        filled = np.where(known | own_block, filled, 0.0)
    root, history, converged = _refine(filled, known, rank, max_iter if refines else 0, tol)
    if settings.shift is None:
        rotations = draw_rotations(rank, n_starts, rng)
        nonnegative, _ = rotate_nonnegative(
            root, rotations=rotations, max_iter=settings.rotation_steps, tol=tol
        )
    else:
        nonnegative, _ = rotate_shifted(
            root,
            shift=settings.shift,
            shift_decay=settings.shift_decay,
            max_iter=settings.rotation_steps,
            tol=tol,
        )
    prior, factors = read_parameters(nonnegative, offsets, singles)
    isolated = find_isolated(observed, offsets)
    factors[isolated] = singles[isolated, None]
    return SolverResult(prior, factors, history, len(history) - 1, converged or not refines)


def impute_pairs(
    marginals: FloatArray,
    offsets: IntArray,
    observed: BoolArray,
    *,
    rank: int,
    settings: SymnmfSettings = _DEFAULT,
) -> FloatArray:
    """Impute diagonal blocks and unobserved pairs from the observed pairs.

    Parameters
    ----------
    marginals, offsets, observed
        As for `fit_spa`.
    rank
        Number of latent states, at least 1.
    settings
        Settings of the method.

    Returns
    -------
    float64 of shape (n_levels, n_levels), symmetric and non-negative; observed pairs are unchanged. An unobserved pair
    is filled as if its variables were independent. The variables are then split into three groups, and the diagonal
    blocks of group M are those of X[M, R] pinv(X[L, R]) X[L, M], scaled to sum to 1, where L and R are the other groups
    and the inverse has at most the given rank. With only two variables, each is assumed to determine the state: its
    block is diagonal.

    References
    ----------
    Ibrahim and Fu (2021), ICML, equations (7) and (8), with groups of variables in place of single workers so
    that the rank may exceed the levels of a variable.
    """
    singles = read_singles(marginals, offsets)
    filled = np.where(spread_pairs(observed, offsets), marginals, np.outer(singles, singles))
    owners = list_owners(offsets)
    own_block = owners[:, None] == owners
    imputed = np.where(own_block, np.diag(singles), filled)
    groups = [np.flatnonzero(owners % 3 == group) for group in range(3)]
    if not all(group.size for group in groups):
        return imputed
    for _ in range(3):
        mine, near, far = groups
        bridge = _invert(filled[np.ix_(near, far)], rank, settings.least_singular_value)
        cells = filled[np.ix_(mine, far)] @ bridge @ filled[np.ix_(near, mine)]
        cells = np.where(own_block[np.ix_(mine, mine)], np.maximum(cells + cells.T, 0.0), 0.0)
        totals = cells.sum(axis=1)
        by_variable = np.bincount(owners[mine], totals, observed.shape[0])[owners[mine]]
        empty = (by_variable <= FLOOR)[:, None]
        blocks = np.where(
            empty, np.diag(singles[mine]), cells / np.maximum(by_variable, FLOOR)[:, None]
        )
        group_pairs = np.ix_(mine, mine)
        imputed[group_pairs] = np.where(own_block[group_pairs], blocks, imputed[group_pairs])
        groups = [*groups[1:], groups[0]]
    return imputed


def _invert(matrix: FloatArray, rank: int, least: float) -> FloatArray:
    """Compute the pseudo-inverse of the best approximation of a rank, without negligible singular values."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    kept = (values > least * values.max(initial=0.0)) & (np.arange(values.size) < rank)
    return np.asarray((right[kept].T / values[kept]) @ left[:, kept].T)


def _refine(
    filled: FloatArray, known: BoolArray, rank: int, max_iter: int, tol: float
) -> tuple[FloatArray, tuple[float, ...], bool]:
    """Replace imputed entries by those of the low-rank approximation until they converge."""
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


def read_parameters(nonnegative: FloatArray, offsets: IntArray, singles: FloatArray) -> Parameters:
    """Compute the prior and factors from a non-negative square root of the matrix of pairs.

    Parameters
    ----------
    nonnegative
        float64 of shape (n_levels, rank): its blocks are the factors times the square root of the prior.
    offsets
        int64 of shape (n_variables + 1,).
    singles
        float64 of shape (n_levels,), PMF of each variable; used where a block's column has no mass.
    """
    factors = normalise_blocks(nonnegative, offsets, singles[:, None])
    prior = (sum_blocks(nonnegative, offsets) ** 2).mean(axis=0)
    total = prior.sum()
    rank = prior.size
    return (prior / total if total > 0 else np.full(rank, 1.0 / rank)), factors
