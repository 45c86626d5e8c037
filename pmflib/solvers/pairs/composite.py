"""CNMF-OPT: the pairwise composite likelihood, raised by closed-form updates.

The loss is the weighted mean over the observed pairs of KL(marginals[j, k] || A_j D(prior) A_k').
Each cell of a pair is treated as a draw whose latent state is missing; its posterior and the
re-estimate from it need no step size and cannot raise the loss. All pairs are updated at once by
two products over the matrix of levels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmflib.arrays import BoolArray, FloatArray, IntArray, Parameters
from pmflib.solvers.numeric.squarem import extrapolate
from pmflib.solvers.pairs.checks import (
    FLOOR,
    check_limits,
    check_nonnegative,
    check_pairs,
    check_start,
    normalise_blocks,
    read_singles,
    spread_pairs,
)
from pmflib.solvers.pairs.opening import open_start
from pmflib.solvers.result import SolverResult

# Rows of the matrix of levels worked on at a time: a panel stays in the cache.
_PANEL = 256
# Losses below this are an exact fit.
_EXACT = 1e-12
# Share of the single marginals mixed into a start that rules out what was observed.
_OPENING = 0.01


def fit_composite(
    marginals: FloatArray,
    offsets: IntArray,
    observed: BoolArray,
    *,
    initial: Parameters,
    weights: FloatArray | IntArray | None = None,
    pseudo_counts: FloatArray | None = None,
    state_pseudo_count: float = 0.0,
    max_iter: int = 500,
    tol: float = 1e-6,
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
        Of shape (n_variables, n_variables), symmetric, >= 0, of the pairs; only entries of observed
        pairs are read. The supports of the pairs give the composite likelihood; None weighs all
        pairs alike, as published.
    pseudo_counts
        float64 of shape (n_levels,), >= 0, in the units of the weights: added to every state's
        mass of each level. None adds nothing.
    state_pseudo_count
        The same for the prior, added to every state: keeps states from emptying into one another.
    max_iter
        Limit of iterations, at least 0; an iteration is three updates, one of them extrapolated.
    tol
        Stop when an iteration lowers the loss by less than this share of it.

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
    check_nonnegative("state_pseudo_count", np.array(state_pseudo_count), ())
    problem = _pose(marginals, offsets, observed, weights, pseudo_counts, state_pseudo_count)
    current, notes = _open(problem, initial)
    if not problem.total:
        prior, factors = current
        return SolverResult(prior, factors, (0.0,), 0, True, (*notes, "no pair was observed"))
    loss, updated = _update(problem, current)
    history = [loss]
    converged = loss <= _EXACT
    while not converged and len(history) <= max_iter:
        loss, current, updated = _accelerate(problem, loss, current, updated)
        history.append(loss)
        converged = loss <= _EXACT or history[-2] - loss <= tol * abs(loss)
    prior, factors = current
    return SolverResult(prior, factors, tuple(history), len(history) - 1, converged, notes)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Weighted pairs, and what the update needs beside them."""

    table: FloatArray
    offsets: IntArray
    pseudo: FloatArray
    state_pseudo: float
    singles: FloatArray
    isolated: BoolArray
    total: float
    entropy: float


def _pose(
    marginals: FloatArray,
    offsets: IntArray,
    observed: BoolArray,
    weights: FloatArray | IntArray | None,
    pseudo_counts: FloatArray | None,
    state_pseudo: float,
) -> _Problem:
    """Weigh the pairs; both triangles of the table are kept."""
    check_pairs(marginals, offsets, observed)
    n_levels = int(offsets[-1])
    pair_weights = observed.astype(np.float64)
    if weights is not None:
        check_nonnegative("weights", weights, observed.shape)
        pair_weights *= weights
    table = marginals * spread_pairs(pair_weights, offsets)
    held, weighted = table[table > 0], pair_weights[pair_weights > 0]
    # sum of w x log x, with x = table / w and each pair's x of sum 1
    entropy = float(held @ np.log(held)) - float(weighted @ np.log(weighted))
    isolated = np.repeat(~(pair_weights > 0).any(axis=1), np.diff(offsets))
    pseudo = np.zeros(n_levels) if pseudo_counts is None else pseudo_counts
    check_nonnegative("pseudo_counts", pseudo, (n_levels,))
    pseudo = np.where(isolated, 0.0, pseudo)
    singles = read_singles(marginals, offsets)
    total = float(pair_weights.sum())
    return _Problem(table, offsets, pseudo, state_pseudo, singles, isolated, total, entropy)


def _open(problem: _Problem, initial: Parameters) -> tuple[Parameters, tuple[str, ...]]:
    """Check the start, and let it allow all that was observed."""
    prior, factors = initial
    check_start(initial, problem.singles.size)
    isolated = problem.isolated
    factors = np.where(isolated[:, None], problem.singles[:, None], factors)
    notes: tuple[str, ...] = ()
    if isolated.any():
        lone = int(isolated[problem.offsets[:-1]].sum())
        notes = (f"single marginals for {lone} variables without an observed pair",)
    shut = problem.pseudo[:, None] * (factors <= FLOOR)
    if (
        shut.any()
        or problem.state_pseudo * (prior <= FLOOR).any()
        or _rules_out(problem, (prior, factors))
    ):
        prior, factors = open_start(
            (prior, factors),
            _shape(problem)[:, None],
            prior_share=_OPENING,
            factor_share=_OPENING,
        )
        notes += ("start opened: it ruled out pairs that were observed",)
    return (prior, factors), notes


def _shape(problem: _Problem) -> FloatArray:
    """Single marginals, positive wherever pairs or pseudo-counts have mass."""
    mass = problem.table.sum(axis=1) + problem.pseudo
    return normalise_blocks(mass[:, None], problem.offsets, problem.singles[:, None])[:, 0]


def _rules_out(problem: _Problem, parameters: Parameters) -> bool:
    """Whether the model gives next to nothing to an observed cell."""
    prior, factors = parameters
    scaled = factors * prior
    for begin in range(0, factors.shape[0], _PANEL):
        model = scaled[begin : begin + _PANEL] @ factors.T
        if ((problem.table[begin : begin + _PANEL] > 0) & (model < 1e-100)).any():
            return True
    return False


def _update(problem: _Problem, parameters: Parameters) -> tuple[float, Parameters]:
    """Return the loss of the parameters, and the closed-form update of them."""
    prior, factors = parameters
    table = problem.table
    scaled = factors * prior
    pull = np.zeros_like(factors)
    likelihood = 0.0
    for begin in range(0, factors.shape[0], _PANEL):
        end = begin + _PANEL
        model = np.maximum(scaled[begin:end] @ factors[begin:].T, FLOOR)
        held = table[begin:end, begin:]
        ratio = held / model
        pull[begin:end] += ratio @ factors[begin:]
        pull[end:] += ratio[:, _PANEL:].T @ factors[begin:end]
        logs = np.log(model, out=model)
        # The square on the diagonal holds each of its pairs twice, the rest of the panel once.
        likelihood += 2 * float(np.vdot(held, logs))
        likelihood -= float(np.vdot(held[:, :_PANEL], logs[:, :_PANEL]))
    loss = problem.entropy - likelihood - 2 * _log_penalty(problem, parameters)
    mass = scaled * pull
    # Each pair stands in both triangles.
    states = mass.sum(axis=0) / 2 + problem.state_pseudo
    mass += problem.pseudo[:, None]
    # A state without mass keeps its column, so that every column stays a PMF.
    renewed = normalise_blocks(mass, problem.offsets, factors)
    return loss / problem.total, (states / states.sum(), renewed)


def _log_penalty(problem: _Problem, parameters: Parameters) -> float:
    """Log-density of the pseudo-counts, up to a constant."""
    prior, factors = parameters
    penalty = 0.0
    if problem.state_pseudo > 0:
        penalty += problem.state_pseudo * float(np.log(np.maximum(prior, FLOOR)).sum())
    shaped = problem.pseudo > 0
    if shaped.any():
        logs = np.log(np.maximum(factors[shaped], FLOOR)).sum(axis=1)
        penalty += float(problem.pseudo[shaped] @ logs)
    return penalty


def _accelerate(
    problem: _Problem, loss: float, current: Parameters, first: Parameters
) -> tuple[float, Parameters, Parameters]:
    """Return a loss no higher than before, its parameters, and the update of these."""
    loss_first, second = _update(problem, first)
    leapt, _ = extrapolate(current, first, second, problem.offsets, math.inf)
    loss_leapt, beyond = _update(problem, leapt)
    if loss_leapt <= min(loss, loss_first):
        return loss_leapt, leapt, beyond
    loss_second, beyond = _update(problem, second)
    if loss_second <= min(loss, loss_first):
        return loss_second, second, beyond
    # At the minimum an update may raise the loss by a rounding error.
    return (loss_first, first, second) if loss_first <= loss else (loss, current, first)
