"""EM of the joint PMF: its state, its M-step, and when it has converged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pmflib.core.arrays import Arrays, FloatArray, IntArray, Parameters
from pmflib.core.defaults import LIMITS, Limits
from pmflib.em.checkpoint import Checkpoint
from pmflib.em.driver import count_stale, has_settled, is_near_limit, run_em
from pmflib.model.statistics import Assessor, EMStatistics, Evaluate, m_step
from pmflib.solvers import PseudoCounts
from pmflib.solvers.numeric.squarem import Acceleration

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

    def to_arrays(self) -> Arrays:
        """The state as a checkpoint keeps it: that EM has converged is found again."""
        arrays = {
            "prior": self.prior,
            "factors": self.factors,
            "loss_history": np.array(self.loss_history),
            "log_likelihoods": np.array(self.log_likelihoods),
            "held_out": np.array(self.held_out),
        }
        models: dict[str, Parameters | None] = {}
        if self.best_prior is not None and self.best_factors is not None:
            models["best"] = self.best_prior, self.best_factors
        if (acceleration := self.acceleration) is not None:
            steps = [acceleration.step_length, acceleration.longest, acceleration.passes_saved]
            arrays["acceleration"] = np.array(steps)
            models |= {"origin": acceleration.origin, "fallback": acceleration.fallback}
        for name, model in models.items():
            if model is not None:
                arrays[f"{name}_prior"], arrays[f"{name}_factors"] = model
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> EMState:
        """The state that `to_arrays` was called on, to the same bits."""

        def find(name: str) -> Parameters | None:
            if f"{name}_prior" not in arrays:
                return None
            return arrays[f"{name}_prior"], arrays[f"{name}_factors"]

        best_prior, best_factors = find("best") or (None, None)
        acceleration = None
        if "acceleration" in arrays:
            steps = arrays["acceleration"].tolist()
            acceleration = Acceleration(find("origin"), find("fallback"), *steps)
        return cls(
            arrays["prior"],
            arrays["factors"],
            tuple(arrays["loss_history"].tolist()),
            tuple(arrays["log_likelihoods"].tolist()),
            tuple(arrays["held_out"].tolist()),
            best_prior,
            best_factors,
            acceleration,
        )


def run_joint_pmf_em(
    evaluate: Evaluate[Parameters],
    state: EMState,
    offsets: IntArray,
    *,
    pseudo_counts: PseudoCounts,
    max_passes: int,
    tol: float,
    score: Assessor[Parameters] | None = None,
    patience: int = LIMITS.patience,
    accelerate: bool = False,
    checkpoint: Checkpoint[EMState] | None = None,
    on_pass: Callable[[EMState], None] | None = None,
) -> EMState:
    """Make passes until the objective has converged, or the held-out log-likelihood has stopped rising.

    Parameters
    ----------
    evaluate
        Sufficient statistics of the training samples: in memory, or a map-reduce over partitions.
    state
        Start.
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
    score
        Log-likelihood of held-out samples. With it the model where that is best is kept, and passes are made while it
        rises.
    patience
        Passes without a rise of the held-out log-likelihood, by more than ``tol`` of its value, before stopping.
    accelerate
        Whether to extrapolate from every two passes; an extrapolation is kept if the objective did not rise. Pays
        where EM is to converge; early stopping on held-out samples comes before that.
    checkpoint, on_pass
        As for `run_em`.

    Returns
    -------
    The state at the end. Its objective never rises from pass to pass.

    Raises
    ------
    PmfError
        If max_passes or tol is negative, or patience is below 1, or the checkpoint is of another fit.
    """
    Limits(max_passes, tol, patience).check()

    def start() -> EMState:
        first = state
        if accelerate and first.acceleration is None:
            first = replace(first, acceleration=Acceleration())
        if score is not None and not first.held_out:
            first = _score_model(first, score)
        return first

    def update(state: EMState, statistics: EMStatistics) -> EMState:
        state = _maximise(state, statistics, offsets, pseudo_counts)
        return state if score is None else _score_model(state, score)

    def has_converged(state: EMState) -> bool:
        if score is not None:
            return count_stale(state.held_out, tol) >= patience
        if accelerate:
            return has_settled(state.loss_history, tol, SETTLED_PASSES)
        return is_near_limit(state.loss_history, tol)

    end = run_em(
        evaluate,
        update,
        start,
        has_converged=has_converged,
        max_passes=max_passes,
        checkpoint=checkpoint,
        on_pass=on_pass,
    )
    return _drop_unscored(replace(end, converged=has_converged(end)))


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


def _score_model(state: EMState, score: Assessor[Parameters]) -> EMState:
    """Note the held-out log-likelihood of the current model, and keep the model if it is the best so far."""
    value = score(state.parameters)
    is_best = not state.held_out or value > max(state.held_out)
    state = replace(state, held_out=(*state.held_out, value))
    if is_best:
        state = replace(state, best_prior=state.prior, best_factors=state.factors)
    return state


def _drop_unscored(state: EMState) -> EMState:
    """Return to the model of plain EM where the current one is an extrapolation that no pass has evaluated."""
    if state.acceleration is None or state.acceleration.fallback is None:
        return state
    prior, factors = state.acceleration.fallback
    acceleration = replace(state.acceleration, fallback=None, step_length=1.0)
    return replace(state, prior=prior, factors=factors, acceleration=acceleration)
