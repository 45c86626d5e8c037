"""The loop over EM passes: when to extrapolate, what to keep, when to stop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.em.statistics import EMStatistics, m_step
from pmflib.errors import PmfError
from pmflib.solvers.numeric.squarem import FIRST_REACH, GROWTH, LEAST_REACH, extrapolate
from pmflib.solvers.pairs.opening import open_start
from pmflib.solvers.pairs.pseudo_counts import PseudoCounts

CYCLE = 2
"""Passes from one extrapolation that is kept to the next."""


@dataclass(frozen=True, eq=False)
class EMState:
    """Where the loop stands: enough to go on from, to the same bits.

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
        Held-out log-likelihood after each pass, nats per sample; its first entry is the start's.
    best_prior, best_factors
        The model with the best held-out log-likelihood; None without held-out samples.
    converged
        Whether the loop has met its tolerance, or its patience has run out.
    origin
        With acceleration, the model one pass before the current one, where two passes in a row are wanted.
    refuge
        With acceleration, what plain EM would have gone on with, while the current model is an extrapolation that is
        not judged yet.
    stretch
        Of the extrapolation that is not judged yet.
    reach
        Longest stretch of the next extrapolation.
    passes_saved
        Passes that acceleration has saved so far, by what it has gained in units of the pass before.
    """

    prior: FloatArray
    factors: FloatArray
    loss_history: tuple[float, ...] = ()
    log_likelihoods: tuple[float, ...] = ()
    held_out: tuple[float, ...] = ()
    best_prior: FloatArray | None = None
    best_factors: FloatArray | None = None
    converged: bool = False
    origin: Parameters | None = None
    refuge: Parameters | None = None
    stretch: float = 1.0
    reach: float = FIRST_REACH
    passes_saved: float = 0.0

    @property
    def n_passes(self) -> int:
        """Number of passes made."""
        return len(self.loss_history)

    @property
    def best_pass(self) -> int:
        """Pass after which the chosen model stood; 0 is the start."""
        return int(np.argmax(self.held_out)) if self.held_out else self.n_passes


def open_for_em(model: Parameters, singles: FloatArray) -> Parameters:
    """Start EM near a fit of the marginals, with nothing ruled out.

    A fit of sampled marginals has many zeros: a tenth of the prior is spread over all states, and a hundredth of every
    conditional PMF is the variable's own.

    Parameters
    ----------
    model
        Prior (rank,) and factors (n_levels, rank).
    singles
        float64 of shape (n_levels,), PMF of each variable.
    """
    return open_start(model, singles[:, None], prior_share=0.1, factor_share=0.01)


Evaluate = Callable[[FloatArray, FloatArray], EMStatistics]
"""Sufficient statistics of a set of samples under a prior and factors."""

Judge = Callable[[FloatArray, FloatArray], float]
"""Log-likelihood of held-out samples under a prior and factors, nats per sample."""


def run_em(
    evaluate: Evaluate,
    state: EMState,
    offsets: IntArray,
    *,
    pseudo_counts: PseudoCounts,
    max_passes: int,
    tol: float,
    validate: Judge | None = None,
    patience: int = 10,
    accelerate: bool = False,
    on_pass: Callable[[EMState], None] | None = None,
) -> EMState:
    """Make passes until the objective settles, or the held-out likelihood has stopped rising.

    Parameters
    ----------
    evaluate
        Statistics of the training samples: in memory, or a map-reduce over partitions.
    state
        Start, or a checkpoint to go on from.
    offsets
        int64 of shape (n_variables + 1,).
    pseudo_counts
        Pseudo-counts.
    max_passes
        Passes in all, counting those of a checkpoint.
    tol
        Share of the objective, at least 0: the loop has converged when what passes may still gain, by `estimate_gap`,
        is below it. With held-out samples, the rise of their log-likelihood that counts as one.
    validate
        Log-likelihood of held-out samples, nats per sample. With it that is looked at after every pass, the model where
        it was best is kept, and the loop goes on while it rises.
    patience
        Passes without a rise of the held-out log-likelihood, by more than ``tol`` of its value, before stopping.
    accelerate
        Whether to extrapolate from every two passes; an extrapolation is kept if the objective did not fall. Pays
        where the loop is to converge; early stopping on held-out samples comes before that.
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
    for name, value, least in (
        ("max_passes", max_passes, 0),
        ("tol", tol, 0),
        ("patience", patience, 1),
    ):
        if not value >= least:
            raise PmfError(f"{name} is {value}; give at least {least}")
    if validate is not None and not state.held_out:
        first = validate(state.prior, state.factors)
        state = replace(
            state, held_out=(first,), best_prior=state.prior, best_factors=state.factors
        )
    while state.n_passes < max_passes and not state.converged:
        statistics = evaluate(state.prior, state.factors)
        state = _advance(state, statistics, offsets, pseudo_counts, accelerate)
        if validate is None:
            gap = estimate_gap(state.loss_history, CYCLE if accelerate else 1)
            state = replace(state, converged=gap <= tol * abs(state.loss_history[-1]))
        else:
            state = _judge(state, validate(state.prior, state.factors), tol, patience)
        if on_pass is not None:
            on_pass(state)
    if state.refuge is not None:
        # nobody has judged the extrapolation
        state = replace(state, prior=state.refuge[0], factors=state.refuge[1], refuge=None)
    return state


def estimate_gap(losses: Sequence[float], stride: int = 1) -> float:
    """What a slowly converging sequence may still lose, from how its changes shrink.

    Parameters
    ----------
    losses
        Falling, nats per sample.
    stride
        Passes between the losses compared; where the sequence goes by cycles, their length. The estimate is the
        largest over the last cycle.

    Returns
    -------
    Estimate of the last loss minus the limit: of a geometric sequence, exactly that. Infinite while changes grow, or
    are too few to tell.

    References
    ----------
    Aitken (1926); for EM, McLachlan, Krishnan (2008), section 4.9.
    """
    if len(losses) < 3 * stride:
        return math.inf
    gaps = []
    for last in range(len(losses) - stride, len(losses)):
        before, change = (max(losses[i - stride] - losses[i], 0.0) for i in (last - stride, last))
        if change == 0:
            gaps.append(0.0)
        else:
            gaps.append(change**2 / (before - change) if before > change else math.inf)
    return max(gaps)


def _advance(
    state: EMState,
    statistics: EMStatistics,
    offsets: IntArray,
    pseudo_counts: PseudoCounts,
    accelerate: bool,
) -> EMState:
    """Update the model, and note the objective of the model before."""
    n_rows = max(statistics.n_rows, 1)
    penalty = pseudo_counts.log_penalty(state.prior, state.factors)
    loss = -(statistics.log_likelihood + penalty) / n_rows
    log_likelihood = statistics.log_likelihood / n_rows
    if state.refuge is not None and not loss <= state.loss_history[-1]:
        # the extrapolation went too far: back to where plain EM would be, and shorter next time
        return replace(
            state,
            prior=state.refuge[0],
            factors=state.refuge[1],
            refuge=None,
            reach=max(state.stretch / GROWTH, LEAST_REACH),
            loss_history=(*state.loss_history, state.loss_history[-1]),
            log_likelihoods=(*state.log_likelihoods, state.log_likelihoods[-1]),
            passes_saved=state.passes_saved - 1,
        )
    reach, saved = state.reach, state.passes_saved
    if state.refuge is not None:
        reach *= GROWTH if state.stretch >= reach else 1.0
        saved += _count_saved(state.loss_history, loss)
    here = state.prior, state.factors
    new = m_step(statistics, offsets, pseudo_counts, *here)
    origin, refuge, stretch = here if accelerate else None, None, 1.0
    if accelerate and state.origin is not None:
        ahead, stretch = extrapolate(state.origin, here, new, offsets, reach)
        if stretch > 1:
            new, origin, refuge = ahead, None, new
    return replace(
        state,
        prior=new[0],
        factors=new[1],
        loss_history=(*state.loss_history, loss),
        log_likelihoods=(*state.log_likelihoods, log_likelihood),
        origin=origin,
        refuge=refuge,
        stretch=stretch,
        reach=reach,
        passes_saved=saved,
    )


def _count_saved(losses: Sequence[float], loss: float) -> float:
    """Passes as good as the last one before an extrapolation that its gain is worth, but for its own."""
    gained = losses[-2] - losses[-1]
    return max((losses[-1] - loss) / gained - 1, 0.0) if gained > 0 else 0.0


def _judge(state: EMState, held_out: float, tol: float, patience: int) -> EMState:
    """Note the held-out log-likelihood of the model, and keep the model if it is the best so far."""
    better = held_out > max(state.held_out)
    state = replace(state, held_out=(*state.held_out, held_out))
    if better:
        state = replace(state, best_prior=state.prior, best_factors=state.factors)
    return replace(state, converged=_count_stale(state.held_out, tol) >= patience)


def _count_stale(held_out: Sequence[float], tol: float) -> int:
    """Passes since the held-out log-likelihood last rose by more than a share of its value."""
    risen, level = 0, held_out[0]
    for passes, value in enumerate(held_out):
        if value > level + tol * abs(level):
            risen, level = passes, value
    return len(held_out) - 1 - risen
