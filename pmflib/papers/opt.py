"""CNMF-OPT: maximisation of the pairwise composite likelihood by closed-form updates.

The loss is the weighted mean over the observed pairs of KL(marginals[j, k] || A_j D(prior) A_k'). Each cell of a pair
is treated as a draw with a missing latent state. Re-estimating the parameters from its posterior needs no step size and
cannot increase the loss. All pairs are updated at once by two products with the matrix of levels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pmflib.base.arrays import (
    FLOOR,
    BoolArray,
    FloatArray,
    IntArray,
    Parameters,
    normalise_blocks,
    spread_pairs,
)
from pmflib.base.pseudo_counts import (
    PseudoCounts,
    SolverResult,
    check_limits,
    check_nonnegative,
    check_start,
)
from pmflib.papers.pair_matrix import check_pairs, find_isolated, open_start, read_singles
from pmflib.papers.squarem import descend

PANEL = 256
"""Number of rows of the matrix processed at a time; a panel fits in the cache."""


@dataclass(frozen=True)
class CompositeSettings:
    """Settings of `fit_composite`."""

    exact_loss: float = 1e-12
    """Loss, in nats, at or below which a fit is exact up to rounding."""
    ruled_out: float = 1e-100
    """Chosen: starting values rule out an observed cell if they give it a probability below this."""
    start_share: float = 0.01
    """Chosen: weight of the uniform prior and the single marginals that are mixed into starting values that rule out
    observed cells.
    """


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
    """Fit the prior and factors to pairwise marginals in KL divergence.

    Parameters
    ----------
    marginals
        float64 of shape (n_levels, n_levels), symmetric, as in `fit_spa`: joint probability tables of observed pairs;
        diagonal blocks have the single marginals on their diagonal.
    offsets
        int64 of shape (n_variables + 1,); variable j owns rows ``offsets[j]:offsets[j + 1]``.
    observed
        bool of shape (n_variables, n_variables), symmetric, False on the diagonal.
    initial
        Starting values: prior (rank,) and factors (n_levels, rank), each a PMF.
    weights
        Weights of the pairs, of shape (n_variables, n_variables), symmetric, >= 0; only entries of observed pairs are
        used. The supports of the pairs give the composite likelihood; None weights all pairs equally, as published.
    pseudo_counts
        Pseudo-counts in the units of the weights; those of levels have shape (n_levels,) and are >= 0. Those of the
        states prevent states from losing their mass to one another. None adds nothing.
    max_iter
        Maximum number of iterations, at least 0; an iteration consists of three updates, one of them extrapolated.
    tol
        Stop when the relative decrease of the loss in an iteration is at most this.
    settings
        Settings of the method.

    Returns
    -------
    The fit. ``loss_history`` starts with the loss of the start and never increases: the weighted mean divergence in
    nats, minus the log-density of the pseudo-counts divided by the sum of the weights.

    Raises
    ------
    SchemaError, PmfError
        If arrays are inconsistent or a number is out of range.

    Notes
    -----
    An iteration takes 6 n_levels^2 rank multiply-adds and n_levels^2 logarithms; memory is one weighted copy of the
    marginals. A variable without an observed pair gets its single marginal in every state, or a uniform PMF if it was
    never observed. Updates are accelerated by SQUAREM, with the plain update as fallback.

    References
    ----------
    Ibrahim and Fu (2021), IEEE Transactions on Signal Processing 69, equation (6) and Algorithm 1,
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
    """Weighted pairs, and precomputed quantities for the updates."""

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
    """Weight the pairs; both triangles of the table are stored."""
    check_pairs(marginals, offsets, observed)
    n_levels = int(offsets[-1])
    pair_weights = observed.astype(np.float64)
    if weights is not None:
        check_nonnegative("weights", weights, observed.shape)
        pair_weights *= weights
    table = marginals * spread_pairs(pair_weights, offsets)
    positive, weighted = table[table > 0], pair_weights[pair_weights > 0]
    # sum of w x log x, where x = table / w sums to 1 for each pair
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
    """Check the starting values, and modify them if they rule out observed cells."""
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
        notes += ("starting values mixed with the single marginals: they ruled out observed cells",)
    return (prior, factors), notes


def _open_singles(problem: _Problem) -> FloatArray:
    """Return single marginals that are positive wherever pairs or pseudo-counts have mass."""
    mass = problem.table.sum(axis=1) + problem.pseudo_counts.levels
    return normalise_blocks(mass[:, None], problem.offsets, problem.singles[:, None])[:, 0]


def _rules_out(problem: _Problem, parameters: Parameters, ruled_out: float) -> bool:
    """Return whether the model gives an observed cell a probability below a limit."""
    prior, factors = parameters
    scaled = factors * prior
    for first in range(0, factors.shape[0], PANEL):
        model = scaled[first : first + PANEL] @ factors.T
        if ((problem.table[first : first + PANEL] > 0) & (model < ruled_out)).any():
            return True
    return False


def _update(problem: _Problem, parameters: Parameters) -> tuple[float, Parameters]:
    """Return the loss of the parameters and their closed-form update."""
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
        # The diagonal square contains each of its pairs twice, the rest of the panel once.
        likelihood += 2 * float(np.vdot(counts, logs))
        likelihood -= float(np.vdot(counts[:, :PANEL], logs[:, :PANEL]))
    loss = problem.entropy - likelihood - 2 * problem.pseudo_counts.log_penalty(prior, factors)
    mass = scaled * pull
    # Each pair is in both triangles.
    states = mass.sum(axis=0) / 2 + problem.pseudo_counts.state
    mass += problem.pseudo_counts.levels[:, None]
    # A state without mass keeps its column, so that every column remains a PMF.
    renewed = normalise_blocks(mass, problem.offsets, factors)
    return loss / problem.total, (states / states.sum(), renewed)
