"""CNMF-SPA: factors read off the most extreme columns of one large nonnegative matrix.

The variables are split in two sides; the pairwise marginals across make the matrix
X = W H' with W the factors of the first side, stacked, and H' = D(prior) times those of the second.
Where every latent state has a level that (nearly) no other state has, W is among X's columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.core.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    Parameters,
    normalise_blocks,
    repeat_blocks,
    spread_pairs,
    sum_blocks,
)
from pmflib.core.errors import PmfError, RankError, SchemaError
from pmflib.solvers import SolverResult, check_rank
from pmflib.solvers.numeric.least_squares import solve_nnls, solve_simplex_least_squares
from pmflib.solvers.pairs.pair_matrix import check_pairs, list_splits, read_singles


@dataclass(frozen=True)
class SpaSettings:
    """Numbers that `select_anchors` and `fit_spa` work with."""

    span: float = 1e-10
    """A residual up to this share of the largest column is rounding: the columns span no more."""
    refresh: float = 1e-6
    """Residuals are measured again after the largest squared norm has fallen to this share: updates would lose more
    than six of a double's sixteen digits."""
    tie: float = 1e-6
    """Chosen: squared norms that differ by this share are a tie, as equal columns are after rounding."""
    cell_floor: float = 1e-6
    """Chosen, as `fit_mirror` has it: model cells below count as this much in the divergence, for anchors of
    few samples hold zeros that say nothing about the fit elsewhere."""


_DEFAULT = SpaSettings()


def select_anchors(matrix: FloatArray, rank: int, *, settings: SpaSettings = _DEFAULT) -> IntArray:
    """Pick the columns whose l1-scaled hull holds all others, by successive projection.

    Parameters
    ----------
    matrix
        float64 of shape (n_rows, n_columns), nonnegative and finite.
    rank
        Columns to pick, at least 1.
    settings
        Numbers that the method works with.

    Returns
    -------
    int64 of shape (rank,), column indices in the order of choice. A column without mass is never
    chosen. Of residual norms that tie the column of larger original norm wins, then the first.

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
    check_rank(rank)
    anchors = _project_successively(matrix, rank, settings)
    if anchors.size < rank:
        raise RankError(
            f"rank is {rank}, above {anchors.size}, the numerical rank of the matrix of shape "
            f"{matrix.shape}; lower rank to {anchors.size}"
        )
    return anchors


def fit_spa(
    marginals: FloatArray,
    offsets: IntArray,
    observed: BoolArray,
    *,
    rank: int,
    split: BoolArray | None = None,
    settings: SpaSettings = _DEFAULT,
) -> SolverResult:
    """Fit the model to pairwise marginals without iterating, from anchor columns.

    Parameters
    ----------
    marginals
        float64 of shape (n_levels, n_levels), symmetric. Block (j, k) is a joint probability table
        (sum 1) where ``observed[j, k]`` and 0 elsewhere; diagonal blocks are diagonal matrices of
        the single marginals, 0 for a variable never observed. They are never used as a pair.
    offsets
        int64 of shape (n_variables + 1,); variable j owns rows ``offsets[j]:offsets[j + 1]``.
    observed
        bool of shape (n_variables, n_variables), symmetric, False on the diagonal.
    rank
        Latent states, at least 1 and at most the levels of the smaller side. Rank 1 needs no split
        and is the single marginals.
    split
        bool of shape (n_variables,), True for the first side. By default the first half,
        every other variable, a greedy cut through many observed pairs, and the same with the sides
        exchanged are all fitted, and the best is returned; where none of them has ``rank``
        levels on both sides, the most even split is taken.
    settings
        Numbers that the method works with.

    Returns
    -------
    The fit, always finite. ``loss_history`` holds one number, the mean over the observed pairs
    j < k of KL(marginals[j, k] || model), in nats, with model cells floored, and 0 when no pair is
    observed; the default split minimises it. ``n_iter`` is 0. ``notes`` name the split and the repairs.

    Raises
    ------
    SchemaError
        If the arrays do not fit each other, or there is one variable only.
    PmfError
        If a marginal is negative or not finite.
    RankError
        If ``rank`` is below 1, above the levels of the smaller side, or above the numerical rank
        of the matrix across the split (of every split tried).

    Notes
    -----
    A pair in the matrix that was never observed is filled as if
    its variables were independent. A variable never observed gets uniform columns; a state that
    has no mass in a variable gets that variable's single marginal; a level never seen gets 0.

    References
    ----------
    Ibrahim and Fu (2021), IEEE Transactions on Signal Processing 69, Algorithm 2. There the natural
    order decides the split and the prior comes from the Khatri-Rao product's pseudo-inverse.
    """
    check_pairs(marginals, offsets, observed)
    check_rank(rank)
    cardinalities = np.diff(offsets)
    if cardinalities.size < 2:
        raise SchemaError(f"offsets is {offsets.tolist()}; must hold at least two variables")
    singles = read_singles(marginals, offsets)
    across_pairs = spread_pairs(observed, offsets)
    pairs = np.where(across_pairs, marginals, 0.0)
    n_pairs = int(observed.sum())
    notes = _describe_gaps(marginals, offsets, observed)
    if rank == 1:
        prior, factors = np.ones(1), singles[:, None].copy()
        loss = _mean_divergence(pairs, prior, factors, n_pairs, settings.cell_floor)
        return SolverResult(prior, factors, (loss,), 0, True, notes)
    if split is None:
        splits = list_splits(cardinalities, observed, rank)
    else:
        splits = [("given", _check_split(split, cardinalities, rank))]
    filled = marginals
    if n_pairs < observed.size - cardinalities.size:
        filled = np.where(across_pairs, marginals, np.outer(singles, singles))
    fits, spans = [], {}
    for name, first in splits:
        rows = repeat_blocks(first, offsets)
        anchors = _project_successively(filled[np.ix_(rows, ~rows)], rank, settings)
        spans[name] = anchors.size
        if anchors.size == rank:
            prior, factors = _fit_split(filled, offsets, singles, first, anchors)
            loss = _mean_divergence(pairs, prior, factors, n_pairs, settings.cell_floor)
            fits.append((loss, name, prior, factors))
    if not fits:
        raise RankError(_explain_rank(rank, spans))
    loss, best, prior, factors = min(fits, key=lambda fit: fit[0])
    losses = ", ".join(f"{name} {value:.4g}" for value, name, _, _ in fits)
    notes += (f"split: {best}; divergences: {losses}",)
    return SolverResult(prior, factors, (loss,), 0, True, notes)


def _project_successively(matrix: FloatArray, rank: int, settings: SpaSettings) -> IntArray:
    """Return the anchors in order, fewer than ``rank`` when the columns span no more."""
    mass = matrix.sum(axis=0)
    residual = matrix / np.where(mass > 0, mass, 1.0)
    original = np.einsum("ij,ij->j", residual, residual)
    norms = original.copy()
    largest = fresh = float(norms.max(initial=0.0))
    basis = np.empty((rank, matrix.shape[0]))
    anchors = np.empty(rank, np.int64)
    for step in range(rank):
        if norms.max(initial=0.0) <= settings.refresh * fresh:
            residual -= basis[:step].T @ (basis[:step] @ residual)
            norms = np.einsum("ij,ij->j", residual, residual)
            fresh = float(norms.max(initial=0.0))
        top = norms.max(initial=0.0)
        if top <= settings.span**2 * largest:
            return anchors[:step]
        tied = np.flatnonzero(norms >= (1.0 - settings.tie) * top)
        anchors[step] = tied[np.argmax(original[tied])]
        direction = residual[:, anchors[step]].copy()
        for _ in range(2):
            direction -= (basis[:step] @ direction) @ basis[:step]
        basis[step] = direction / np.linalg.norm(direction)
        # ||(I - uu')v||^2 = ||v||^2 - (u'v)^2: the projector is never formed.
        norms -= (basis[step] @ residual) ** 2
        norms[anchors[: step + 1]] = 0.0
    return anchors


def _fit_split(
    filled: FloatArray,
    offsets: IntArray,
    singles: FloatArray,
    first: BoolArray,
    anchors: IntArray,
) -> Parameters:
    """Return the prior and the factors that the anchors of one split lead to."""
    rows = repeat_blocks(first, offsets)
    across = filled[np.ix_(rows, ~rows)]
    left_offsets, right_offsets = (
        np.append(0, np.cumsum(np.diff(offsets)[side])) for side in (first, ~first)
    )
    left = normalise_blocks(across[:, anchors], left_offsets, singles[rows, None])
    gram, cross = left.T @ left, left.T @ across
    right = solve_nnls(gram, cross).T
    right = normalise_blocks(right, right_offsets, singles[~rows, None])
    # Normal equations of the Khatri-Rao product, which is never formed.
    prior = solve_simplex_least_squares(
        gram * (right.T @ right), np.einsum("fb,bf->f", cross, right)
    )
    factors = np.empty((singles.size, anchors.size))
    factors[rows], factors[~rows] = left, right
    return prior, factors


def _mean_divergence(
    pairs: FloatArray, prior: FloatArray, factors: FloatArray, n_pairs: int, floor: float
) -> float:
    """Return the mean divergence of the model from the pairs, whose other cells are all 0."""
    model = np.maximum((factors * prior) @ factors.T, floor)
    # The least divergence is 0; rounding and the floor may leave it a hair below.
    positive = pairs > 0
    divergence = float(pairs[positive] @ np.log(pairs[positive] / model[positive]))
    return max(0.0, divergence) / max(n_pairs, 1)


def _describe_gaps(
    marginals: FloatArray, offsets: IntArray, observed: BoolArray
) -> tuple[str, ...]:
    """Say what had to be filled in."""
    n_variables = observed.shape[0]
    missing = (n_variables * (n_variables - 1) - int(observed.sum())) // 2
    unseen = np.flatnonzero(sum_blocks(np.diagonal(marginals), offsets) == 0)
    notes = []
    if missing:
        notes.append(f"unobserved pairs taken as independent: {missing}")
    if unseen.size:
        listed = ", ".join(map(str, unseen[:5])) + (", ..." if unseen.size > 5 else "")
        notes.append(f"never observed, uniform: {unseen.size} variables ({listed})")
    return tuple(notes)


def _explain_rank(rank: int, spans: dict[str, int]) -> str:
    """Word the refusal of a rank that no split's matrix carries."""
    limit = max(spans.values())
    tried = ", ".join(f"{name}: {span}" for name, span in spans.items())
    return (
        f"rank is {rank}, above {limit}, the numerical rank of the marginals across the "
        f"variables' split ({tried}); lower rank to {limit} or pass another split"
    )


def _check_split(split: BoolArray, cardinalities: IntArray, rank: int) -> BoolArray:
    """Refuse a split of another shape, or with a side that cannot carry the rank."""
    if split.shape != cardinalities.shape or split.dtype != np.bool_:
        raise SchemaError(
            f"split has shape {split.shape} and dtype {split.dtype}, not {cardinalities.shape} "
            "and bool; pass True for each variable of the first side"
        )
    limit = int(min(cardinalities[split].sum(), cardinalities[~split].sum()))
    if rank > limit:
        raise RankError(
            f"rank is {rank}, above {limit}, the levels on the smaller side of split; lower rank "
            f"to {limit} or pass a more even split"
        )
    return split
