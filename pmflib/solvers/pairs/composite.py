"""CNMF-OPT: the pairwise composite likelihood, raised by closed-form updates.

The loss is the weighted mean over the observed pairs of KL(marginals[j, k] || A_j D(prior) A_k').
Each cell of a pair is treated as a draw whose latent state is missing; its posterior and the
re-estimate from it need no step size and cannot raise the loss. All pairs are updated at once by
two products over the matrix of levels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pmflib.core.arrays import (
    FLOOR,
    BoolArray,
    FloatArray,
    IntArray,
    Parameters,
    normalise_blocks,
    spread_pairs,
)
from pmflib.solvers import PseudoCounts, SolverResult, check_limits, check_nonnegative, check_start
from pmflib.solvers.numeric.squarem import descend
from pmflib.solvers.pairs.pair_matrix import check_pairs, find_isolated, open_start, read_singles

PANEL = 256
"""Rows of the matrix of levels worked on at a time: a panel stays in the cache."""


@dataclass(frozen=True)
class CompositeSettings:
    """Numbers that `fit_composite` works with."""

    exact_loss: float = 1e-12
    """Nats: a loss at most this high is an exact fit, and what is left of it is rounding."""
    ruled_out: float = 1e-100
    """Chosen: an observed cell whose probability under the start is below this is ruled out by the start."""
    start_share: float = 0.01
    """Chosen: share of the uniform prior and of the single marginals mixed into a start that rules out what was
    observed."""


_DEFAULT = CompositeSettings()


def fit_composite(
    marginals: FloatArray,
    offsets: IntArray,
    observed: BoolArray,
    *,
    initial: Parameters,
    weights: FloatArray | IntArray | None = None,
    pseudo_counts: PseudoCounts | None = None,
    max_iter: int = 500,
    tol: float = 1e-6,
    settings: CompositeSettings = _DEFAULT,
) -> SolverResult:
    """Fit prior and factors to pairwise marginals in KL divergence.

    Parameters
    ----------
    marginals
        float64 of shape (n_levels, n_levels), symmetric, as `fit_spa` takes them: joint probability
        tables where observed; diagonal blocks hold the single marginals on their diagonal.
    offsets
        int64 of shape (n_variables + 1,); variable j owns rows ``offsets[j]:offsets[j + 1]``.
    observed
        bool of shape (n_variables, n_variables), symmetric, False on the diagonal.
    initial
        Prior (rank,) and factors (n_levels, rank) to start from, each a PMF.
    weights
        Weights of the pairs, of shape (n_variables, n_variables), symmetric, >= 0; only entries of
        observed pairs are read. The supports of the pairs give the composite likelihood; None weighs all
        pairs alike, as published.
    pseudo_counts
        In the units of the weights, of levels of shape (n_levels,), >= 0. Those of the states keep states from
        emptying into one another. None adds nothing.
    max_iter
        Limit of iterations, at least 0; an iteration is three updates, one of them extrapolated.
    tol
        Stop when an iteration lowers the loss by at most this share of it.
    settings
        Numbers that the method works with.

    Returns
    -------
    The fit. ``loss_history`` starts with the loss of the start and never rises: the weighted mean
    divergence in nats, minus the log-density of the pseudo-counts over the sum of the weights.

    Raises
    ------
    SchemaError, PmfError
        If the arrays do not fit each other or a number is out of range.

    Notes
    -----
    An iteration takes 6 n_levels^2 rank multiply-adds and n_levels^2 logarithms; memory is one
    weighted copy of the marginals. A variable without an observed pair gets its single marginal in
    every state, uniform where it was never seen. Extrapolation is SQUAREM with the plain update to
    fall back on.

    References
    ----------
    Ibrahim and Fu (2021), IEEE Transactions on Signal Processing 69, equation (8) and Algorithm 1,
    whose mirror descent this replaces; Varadhan and Roland (2008), Scandinavian Journal of
    Statistics 35.
    """
    check_limits(max_iter, tol)
    problem = _pose(marginals, offsets, observed, weights, pseudo_counts)
    start, notes = _open(problem, initial, settings)
    if not problem.total:
        return SolverResult(*start, (0.0,), 0, True, (*notes, "no pair was observed"))
    found = descend(
        lambda parameters: _update(problem, parameters),
        start,
        offsets,
        max_iter=max_iter,
        tol=tol,
        exact_loss=settings.exact_loss,
    )
    return replace(found, notes=notes)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Weighted pairs, and what the update needs beside them."""

    table: FloatArray
    offsets: IntArray
    pseudo_counts: PseudoCounts
    singles: FloatArray
    isolated: BoolArray
    total: float
    entropy: float


def _pose(
    marginals: FloatArray,
    offsets: IntArray,
    observed: BoolArray,
    weights: FloatArray | IntArray | None,
    pseudo_counts: PseudoCounts | None,
) -> _Problem:
    """Weigh the pairs; both triangles of the table are kept."""
    check_pairs(marginals, offsets, observed)
    n_levels = int(offsets[-1])
    pair_weights = observed.astype(np.float64)
    if weights is not None:
        check_nonnegative("weights", weights, observed.shape)
        pair_weights *= weights
    table = marginals * spread_pairs(pair_weights, offsets)
    positive, weighted = table[table > 0], pair_weights[pair_weights > 0]
    # sum of w x log x, with x = table / w and each pair's x of sum 1
    entropy = float(positive @ np.log(positive)) - float(weighted @ np.log(weighted))
    isolated = find_isolated(pair_weights > 0, offsets)
    if pseudo_counts is None:
        pseudo_counts = PseudoCounts(np.zeros(n_levels))
    check_nonnegative("pseudo_counts.levels", pseudo_counts.levels, (n_levels,))
    check_nonnegative("pseudo_counts.state", np.array(pseudo_counts.state), ())
    pseudo_counts = replace(pseudo_counts, levels=np.where(isolated, 0.0, pseudo_counts.levels))
    singles = read_singles(marginals, offsets)
    total = float(pair_weights.sum())
    return _Problem(table, offsets, pseudo_counts, singles, isolated, total, entropy)


def _open(
    problem: _Problem, initial: Parameters, settings: CompositeSettings
) -> tuple[Parameters, tuple[str, ...]]:
    """Check the start, and let it allow all that was observed."""
    prior, factors = initial
    check_start(initial, problem.singles.size)
    isolated = problem.isolated
    factors = np.where(isolated[:, None], problem.singles[:, None], factors)
    notes: tuple[str, ...] = ()
    if isolated.any():
        n_lone = int(isolated[problem.offsets[:-1]].sum())
        notes = (f"single marginals for {n_lone} variables without an observed pair",)
    pseudo_counts, share = problem.pseudo_counts, settings.start_share
    shut = pseudo_counts.levels[:, None] * (factors <= FLOOR)
    if (
        shut.any()
        or pseudo_counts.state * (prior <= FLOOR).any()
        or _rules_out(problem, (prior, factors), settings.ruled_out)
    ):
        singles = _open_singles(problem)[:, None]
        prior, factors = open_start(
            (prior, factors), singles, prior_share=share, factor_share=share
        )
        notes += ("start opened: it ruled out pairs that were observed",)
    return (prior, factors), notes


def _open_singles(problem: _Problem) -> FloatArray:
    """Single marginals, positive wherever pairs or pseudo-counts have mass."""
    mass = problem.table.sum(axis=1) + problem.pseudo_counts.levels
    return normalise_blocks(mass[:, None], problem.offsets, problem.singles[:, None])[:, 0]


def _rules_out(problem: _Problem, parameters: Parameters, ruled_out: float) -> bool:
    """Whether the model gives an observed cell a probability below a limit."""
    prior, factors = parameters
    scaled = factors * prior
    for first in range(0, factors.shape[0], PANEL):
        model = scaled[first : first + PANEL] @ factors.T
        if ((problem.table[first : first + PANEL] > 0) & (model < ruled_out)).any():
            return True
    return False


def _update(problem: _Problem, parameters: Parameters) -> tuple[float, Parameters]:
    """Return the loss of the parameters, and the closed-form update of them."""
    prior, factors = parameters
    table = problem.table
    scaled = factors * prior
    pull = np.zeros_like(factors)
    likelihood = 0.0
    for first in range(0, factors.shape[0], PANEL):
        last = first + PANEL
        model = np.maximum(scaled[first:last] @ factors[first:].T, FLOOR)
        counts = table[first:last, first:]
        ratio = counts / model
        pull[first:last] += ratio @ factors[first:]
        pull[last:] += ratio[:, PANEL:].T @ factors[first:last]
        logs = np.log(model, out=model)
        # The square on the diagonal holds each of its pairs twice, the rest of the panel once.
        likelihood += 2 * float(np.vdot(counts, logs))
        likelihood -= float(np.vdot(counts[:, :PANEL], logs[:, :PANEL]))
    loss = problem.entropy - likelihood - 2 * problem.pseudo_counts.log_penalty(prior, factors)
    mass = scaled * pull
    # Each pair is in both triangles.
    states = mass.sum(axis=0) / 2 + problem.pseudo_counts.state
    mass += problem.pseudo_counts.levels[:, None]
    # A state without mass keeps its column, so that every column stays a PMF.
    renewed = normalise_blocks(mass, problem.offsets, factors)
    return loss / problem.total, (states / states.sum(), renewed)
