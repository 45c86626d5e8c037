"""EM of the joint PMF: its state, its M-step, and when it has converged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.em.convergence import count_stale, has_settled, is_near_limit
from pmflib.em.driver import run_em
from pmflib.em.samples import Evaluate, Judge
from pmflib.em.statistics import EMStatistics, m_step
from pmflib.errors import PmfError
from pmflib.solvers.numeric.squarem import Acceleration
from pmflib.solvers.pairs.pseudo_counts import PseudoCounts

SETTLED_PASSES = 6
"""Passes that must have gained little where passes are accelerated: three extrapolations that are accepted."""


@dataclass(frozen=True, eq=False)
class EMState:
    """State of EM: enough to continue from, to the same bits.

    Parameters
    ----------
    prior, factors
        Current model, float64 of shapes (rank,) and (n_levels, rank).
    loss_history
        Objective before each pass, nats per sample, negated so that it never rises: minus the log-likelihood and
        minus the log-density of the pseudo-counts.
    log_likelihoods
        Training log-likelihood before each pass, nats per sample.
    held_out
        Held-out log-likelihood after each pass, nats per sample; its first entry is that of the start.
    best_prior, best_factors
        The model with the best held-out log-likelihood; None without held-out samples.
    acceleration
        State of the acceleration; None for plain EM.
    converged
        Whether EM ended because it had converged; False while it runs.
    """

    prior: FloatArray
    factors: FloatArray
    loss_history: tuple[float, ...] = ()
    log_likelihoods: tuple[float, ...] = ()
    held_out: tuple[float, ...] = ()
    best_prior: FloatArray | None = None
    best_factors: FloatArray | None = None
    acceleration: Acceleration | None = None
    converged: bool = False

    @property
    def parameters(self) -> Parameters:
        """Current model: what the next E-step takes the expectation under."""
        return self.prior, self.factors

    @property
    def n_passes(self) -> int:
        """Number of passes made."""
        return len(self.loss_history)

    @property
    def best_pass(self) -> int:
        """Number of passes after which the chosen model was reached; 0 is the start."""
        return int(np.argmax(self.held_out)) if self.held_out else self.n_passes

    @property
    def passes_saved(self) -> float:
        """Number of passes that acceleration has saved so far, by an estimate; 0 without it."""
        return 0.0 if self.acceleration is None else self.acceleration.passes_saved


def check_limits(max_passes: int, tol: float, patience: int) -> None:
    """Refuse limits of passes that are out of range, as `run_joint_pmf_em` does."""
    for name, value, least in (
        ("max_passes", max_passes, 0),
        ("tol", tol, 0),
        ("patience", patience, 1),
    ):
        if not value >= least:
            raise PmfError(f"{name} is {value}; give at least {least}")


def run_joint_pmf_em(
    evaluate: Evaluate[Parameters],
    state: EMState,
    offsets: IntArray,
    *,
    pseudo_counts: PseudoCounts,
    max_passes: int,
    tol: float,
    judge: Judge[Parameters] | None = None,
    patience: int = 10,
    accelerate: bool = False,
    on_pass: Callable[[EMState], None] | None = None,
) -> EMState:
    """Make passes until the objective has converged, or the held-out log-likelihood has stopped rising.

    Parameters
    ----------
    evaluate
        Sufficient statistics of the training samples: in memory, or a map-reduce over partitions.
    state
        Start, or a checkpoint to continue from.
    offsets
        int64 of shape (n_variables + 1,).
    pseudo_counts
        Pseudo-counts.
    max_passes
        Limit of passes, counting those of a checkpoint.
    tol
        Share of the objective, at least 0: EM has converged when what passes may still gain, by `estimate_gap`, is
        below it; accelerated, when the last `SETTLED_PASSES` have gained no more. With held-out samples, the rise of
        their log-likelihood that counts as one.
    judge
        Log-likelihood of held-out samples. With it the model where that is best is kept, and passes are made while it
        rises.
    patience
        Passes without a rise of the held-out log-likelihood, by more than ``tol`` of its value, before stopping.
    accelerate
        Whether to extrapolate from every two passes; an extrapolation is kept if the objective did not rise. Pays
        where EM is to converge; early stopping on held-out samples comes before that.
    on_pass
        Called with the state after each pass: checkpoints, progress.

    Returns
    -------
    The state at the end. Its objective never rises from pass to pass.

    Raises
    ------
    PmfError
        If max_passes or tol is negative, or patience is below 1.
    """
    check_limits(max_passes, tol, patience)
    if accelerate and state.acceleration is None:
        state = replace(state, acceleration=Acceleration())
    if judge is not None and not state.held_out:
        state = _judge_model(state, judge)

    def update(state: EMState, statistics: EMStatistics) -> EMState:
        state = _maximise(state, statistics, offsets, pseudo_counts)
        return state if judge is None else _judge_model(state, judge)

    def has_converged(state: EMState) -> bool:
        if judge is not None:
            return count_stale(state.held_out, tol) >= patience
        if accelerate:
            return has_settled(state.loss_history, tol, SETTLED_PASSES)
        return is_near_limit(state.loss_history, tol)

    state = run_em(
        evaluate,
        update,
        state,
        has_converged=has_converged,
        max_passes=max_passes,
        on_pass=on_pass,
    )
    return _drop_unjudged(replace(state, converged=has_converged(state)))


def _maximise(
    state: EMState, statistics: EMStatistics, offsets: IntArray, pseudo_counts: PseudoCounts
) -> EMState:
    """M-step, accelerated or plain; the objective that the E-step has found is noted."""
    current, acceleration = state.parameters, state.acceleration
    n_rows = max(statistics.n_rows, 1)
    log_likelihood = statistics.log_likelihood / n_rows
    loss = -(statistics.log_likelihood + pseudo_counts.log_penalty(*current)) / n_rows
    if acceleration is not None and not acceleration.accepts(loss, state.loss_history):
        updated, acceleration = acceleration.reject()
        # the pass has gained nothing: the history repeats itself
        loss, log_likelihood = state.loss_history[-1], state.log_likelihoods[-1]
    else:
        updated = m_step(statistics, offsets, pseudo_counts, *current)
        if acceleration is not None:
            acceleration = acceleration.accept(loss, state.loss_history)
            updated, acceleration = acceleration.propose(current, updated, offsets)
    return replace(
        state,
        prior=updated[0],
        factors=updated[1],
        loss_history=(*state.loss_history, loss),
        log_likelihoods=(*state.log_likelihoods, log_likelihood),
        acceleration=acceleration,
    )


def _judge_model(state: EMState, judge: Judge[Parameters]) -> EMState:
    """Note the held-out log-likelihood of the current model, and keep the model if it is the best so far."""
    value = judge(state.parameters)
    is_best = not state.held_out or value > max(state.held_out)
    state = replace(state, held_out=(*state.held_out, value))
    if is_best:
        state = replace(state, best_prior=state.prior, best_factors=state.factors)
    return state


def _drop_unjudged(state: EMState) -> EMState:
    """Return to the model of plain EM where the current one is an extrapolation that no pass has judged."""
    if state.acceleration is None or state.acceleration.fallback is None:
        return state
    prior, factors = state.acceleration.fallback
    acceleration = replace(state.acceleration, fallback=None, step_length=1.0)
    return replace(state, prior=prior, factors=factors, acceleration=acceleration)
