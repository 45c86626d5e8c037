"""CNMF-SPA: factors from the most extreme columns of a non-negative matrix.

The variables are split into two sides. The pairwise marginals across the split form the matrix X = W H', where W
contains the stacked factors of the first side and H' = D(prior) times those of the second side. If every latent state
has a level that (almost) no other state has, W is among the columns of X.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    Parameters,
    normalise_blocks,
    repeat_blocks,
    spread_pairs,
    sum_blocks,
)
from pmflib.base.constraints import NONNEGATIVE, Interval, check, check_entries, check_shapes
from pmflib.base.errors import PmfError, RankError, SchemaError
from pmflib.base.pseudo_counts import SolverResult, check_rank
from pmflib.papers.least_squares import solve_nnls, solve_simplex_least_squares
from pmflib.papers.pair_matrix import check_pairs, list_splits, read_singles


@dataclass(frozen=True)
class SpaSettings:
    """Settings of `select_anchors` and `fit_spa`."""

    span: float = 1e-10
    """Relative residual below which the columns are considered to span no further dimension (rounding error)."""
    refresh: float = 1e-6
    """Residuals are recomputed when the largest squared norm has fallen to this fraction; updates would otherwise lose
    more than six of sixteen digits.
    """
    tie: float = 1e-6
    """Relative difference of squared norms that counts as a tie: equal columns differ by rounding."""
    cell_floor: float = 1e-6
    """Lower bound for model cells in the divergence, as in `fit_mirror`: anchors based on few samples contain zeros
    that say nothing about the fit elsewhere.
    """
    zero_unobserved: bool = False
    """Whether unobserved pairs are zero, as published; by default they are filled as if independent."""


_DEFAULT = SpaSettings()


def select_anchors(matrix: FloatArray, rank: int, *, settings: SpaSettings = _DEFAULT) -> IntArray:
    """Select the columns whose l1-scaled convex hull contains all others, by successive projection.

    Parameters
    ----------
    matrix
        float64 of shape (n_rows, n_columns), non-negative and finite.
    rank
        Number of columns to select, at least 1.
    settings
        Settings of the method.

    Returns
    -------
    int64 of shape (rank,), column indices in order of selection. Zero columns are never selected. Ties of residual
    norms go to the column with the larger original norm, then to the first.

    Raises
    ------
    PmfError
        If ``matrix`` is not two-dimensional or contains a negative or non-finite entry.
    RankError
        If ``rank`` is below 1 or above the numerical rank of the columns.

    Notes
    -----
    Time n_rows * n_columns * rank; memory for one copy of the matrix.

    References
    ----------
    Araújo et al. (2001), Chemometrics and Intelligent Laboratory Systems 57; Gillis and Vavasis
    (2014), IEEE PAMI 36.
    """
    check_shapes("", PmfError, matrix=(matrix, ("n_rows", "n_columns")))
    check_entries(NONNEGATIVE, matrix=matrix)
    check_rank(rank)
    anchors = _project_successively(matrix, rank, settings)
    wanted = Interval(1, anchors.size, hint="the numerical rank of the matrix; lower the rank")
    check(wanted, RankError, rank=rank)
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
    """Fit the model to pairwise marginals without iteration, from anchor columns.

    Parameters
    ----------
    marginals
        float64 of shape (n_levels, n_levels), symmetric. Block (j, k) is a joint probability table (sum 1) if
        ``observed[j, k]``, and 0 otherwise; diagonal blocks are diagonal matrices of the single marginals, 0 for a
        variable that was never observed. Diagonal blocks are never used as pairs.
    offsets
        int64 of shape (n_variables + 1,); variable j owns rows ``offsets[j]:offsets[j + 1]``.
    observed
        bool of shape (n_variables, n_variables), symmetric, False on the diagonal.
    rank
        Number of latent states, at least 1 and at most the number of levels of the smaller side. Rank 1 needs no split
        and returns the single marginals.
    split
        bool of shape (n_variables,), True for the first side. By default, several splits are fitted and the best fit is
        returned: the first half, every other variable, a greedy cut through many observed pairs, and each of these with
        the sides exchanged. If none of them has ``rank`` levels on both sides, the most even split is used.
    settings
        Settings of the method.

    Returns
    -------
    The fit, always finite. ``loss_history`` contains one number: the mean over the observed pairs j < k of
    KL(marginals[j, k] || model), nats, with model cells floored, and 0 if no pair is observed. The default split
    minimises it. ``n_iter`` is 0. ``notes`` describe the split and any repairs.

    Raises
    ------
    SchemaError
        If the arrays are inconsistent, or there is only one variable.
    PmfError
        If a marginal is negative or not finite.
    RankError
        If ``rank`` is below 1, above the levels of the smaller side, or above the numerical rank
        of the matrix across the split (of every split tried).

    Notes
    -----
    An unobserved pair in the matrix is filled as if its variables were independent, unless settings say zero. A
    variable that was never observed gets uniform columns; a state without mass in a variable gets that variable's
    single marginal; a level that was never seen gets 0.

    References
    ----------
    Ibrahim and Fu (2021), IEEE Transactions on Signal Processing 69, equation (3) and Algorithm 2. In the paper the
    split follows the order of the variables, and the prior comes from the pseudo-inverse of the Khatri-Rao product.
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
    notes = _describe_gaps(marginals, offsets, observed, settings)
    if rank == 1:
        prior, factors = np.ones(1), singles[:, None].copy()
        loss = _mean_divergence(pairs, prior, factors, n_pairs, settings.cell_floor)
        return SolverResult(prior, factors, (loss,), 0, True, notes)
    if split is None:
        splits = list_splits(cardinalities, observed, rank)
    else:
        splits = [("given", _check_split(split, cardinalities, rank))]
    filled = marginals
    if n_pairs < observed.size - cardinalities.size and not settings.zero_unobserved:
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
    """Return the anchors in order; fewer than ``rank`` if the columns span fewer dimensions."""
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
    """Return the prior and factors that follow from the anchors of one split."""
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
    """Return the mean divergence of the model from the pairs, given tables that are 0 for all other pairs."""
    model = np.maximum((factors * prior) @ factors.T, floor)
    # The divergence is non-negative up to rounding and the floor.
    positive = pairs > 0
    divergence = float(pairs[positive] @ np.log(pairs[positive] / model[positive]))
    return max(0.0, divergence) / max(n_pairs, 1)


def _describe_gaps(
    marginals: FloatArray, offsets: IntArray, observed: BoolArray, settings: SpaSettings
) -> tuple[str, ...]:
    """Describe what had to be filled in."""
    n_variables = observed.shape[0]
    missing = (n_variables * (n_variables - 1) - int(observed.sum())) // 2
    unseen = np.flatnonzero(sum_blocks(np.diagonal(marginals), offsets) == 0)
    notes = []
    if missing:
        how = "taken as zero" if settings.zero_unobserved else "treated as independent"
        notes.append(f"unobserved pairs {how}: {missing}")
    if unseen.size:
        listed = ", ".join(map(str, unseen[:5])) + (", ..." if unseen.size > 5 else "")
        notes.append(f"variables never observed, taken as uniform: {unseen.size} ({listed})")
    return tuple(notes)


def _explain_rank(rank: int, spans: dict[str, int]) -> str:
    """Explain why a rank is too high for every split."""
    limit = max(spans.values())
    tried = ", ".join(f"{name}: {span}" for name, span in spans.items())
    return (
        f"rank is {rank}, above {limit}, the numerical rank of the marginals across the "
        f"variables' split ({tried}); lower rank to {limit} or pass another split"
    )


def _check_split(split: BoolArray, cardinalities: IntArray, rank: int) -> BoolArray:
    """Check the shape of a split and that both sides have enough levels."""
    if split.shape != cardinalities.shape or split.dtype != np.bool_:
        raise SchemaError(
            f"split has shape {split.shape} and dtype {split.dtype}, not {cardinalities.shape} "
            "and bool; pass True for each variable of the first side"
        )
    limit = int(min(cardinalities[split].sum(), cardinalities[~split].sum()))
    hint = "the levels on the smaller side of split: lower the rank, or pass a more even split"
    check(Interval(1, limit, hint=hint), RankError, rank=rank)
    return split
