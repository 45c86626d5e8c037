"""The loop of expectation and maximisation, whatever the model is: when it ends, what it keeps, how it is reported."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from pmflib.display.progress import Report
from pmflib.em.checkpoint import Checkpoint


class PassState(Protocol):
    """State of EM: enough to continue from, to the same bits."""

    @property
    def parameters(self) -> Any:
        """What the next E-step takes the expectation under."""

    @property
    def n_passes(self) -> int:
        """Number of passes made."""


S = TypeVar("S", bound=PassState)
T = TypeVar("T")


def run_em(
    evaluate: Callable[[Any], T],
    update: Callable[[S, T], S],
    start: S | Callable[[], S],
    *,
    has_converged: Callable[[S], bool],
    max_passes: int,
    checkpoint: Checkpoint[S] | None = None,
    on_pass: Callable[[S], None] | None = None,
) -> S:
    """Make passes until they have converged, or there were enough of them.

    Parameters
    ----------
    evaluate
        E-step: sufficient statistics of all samples under the parameters of a state, in memory or as a map over
        partitions.
    update
        M-step: the state after a pass, from the state before and the statistics computed under its parameters.
    start
        State before the first pass, or a function that makes it: called where there is no checkpoint to continue from.
    has_converged
        Whether a state needs no further pass; asked before every pass, so that a checkpoint that has converged is left
        as it is.
    max_passes
        Limit of passes, counting those of a checkpoint.
    checkpoint
        Where the state is kept after each pass, and continued from.
    on_pass
        Called with the state after each pass, once that is kept: progress.

    Returns
    -------
    The state at the end.

    Raises
    ------
    PmfError
        If the checkpoint is of another fit.

    References
    ----------
    Dempster, Laird, Rubin (1977), Journal of the Royal Statistical Society B 39.
    """
    state = None if checkpoint is None else checkpoint.load()
    if state is None:
        state = start() if callable(start) else start
    while state.n_passes < max_passes and not has_converged(state):
        statistics = evaluate(state.parameters)
        state = update(state, statistics)
        if checkpoint is not None:
            checkpoint.save(state)
        if on_pass is not None:
            on_pass(state)
    return state


def is_near_limit(losses: Sequence[float], tol: float) -> bool:
    """Whether what further passes may gain is estimated to be small.

    Parameters
    ----------
    losses
        Objective before each pass, never rising.
    tol
        Share of the objective, at least 0.
    """
    return bool(losses) and estimate_gap(losses) <= tol * abs(losses[-1])


def has_settled(losses: Sequence[float], tol: float, n_passes: int) -> bool:
    """Whether the last passes have gained little, all together.

    For passes between which extrapolations lie: the gain of one says nothing of the next. After a long step the next
    ones are short, and where states are still alike the objective hardly falls for some passes before it falls again.

    Parameters
    ----------
    losses
        Objective before each pass, never rising.
    tol
        Share of the objective, at least 0.
    n_passes
        Number of passes, at least 1.
    """
    return len(losses) > n_passes and losses[-1 - n_passes] - losses[-1] <= tol * abs(losses[-1])


def estimate_gap(losses: Sequence[float]) -> float:
    """Estimate what a slowly converging sequence may still lose, from how its changes shrink.

    Parameters
    ----------
    losses
        Falling, nats per sample.

    Returns
    -------
    Estimate of the last loss minus the limit: of a geometric sequence, exactly that. Infinite while changes grow, or
    are too few for an estimate.

    References
    ----------
    Aitken (1926); for EM, McLachlan, Krishnan (2008), section 4.9.
    """
    if len(losses) < 3:
        return math.inf
    before, change = (max(losses[i - 1] - losses[i], 0.0) for i in (-2, -1))
    if change == 0:
        return 0.0
    return change**2 / (before - change) if before > change else math.inf


def count_stale(held_out: Sequence[float], tol: float) -> int:
    """Number of passes since the held-out log-likelihood last rose by more than a share of its value.

    Parameters
    ----------
    held_out
        Log-likelihood of the start, and after each pass.
    tol
        The share, at least 0.
    """
    risen, level = 0, held_out[0]
    for passes, value in enumerate(held_out):
        if value > level + tol * abs(level):
            risen, level = passes, value
    return len(held_out) - 1 - risen


class LoopState(Protocol):
    """State of a run, as far as it is reported: an `EMState`, or that of a run with forests."""

    @property
    def n_passes(self) -> int:
        """Number of passes made."""

    @property
    def log_likelihoods(self) -> tuple[float, ...]:
        """Training log-likelihood before each pass, nats per sample."""

    @property
    def held_out(self) -> tuple[float, ...]:
        """Held-out log-likelihood of the start and after each pass, nats per sample; empty without held-out samples."""


class PassReporter:
    """Reports the passes of a fit: what `pmflib.fit_em` takes as ``on_pass``.

    Runs, one after the other or side by side, are reported by their names.

    Parameters
    ----------
    report
        Called with the number of passes of a run, their limit and a text, after each pass but the last allowed one.
    max_passes
        Limit of the passes of each run.
    """

    def __init__(self, report: Report, max_passes: int) -> None:
        self._report, self._max_passes = report, max_passes
        self._began: dict[str, tuple[int, float]] = {}

    def __call__(self, run: str, state: LoopState) -> None:
        """Report a pass of a run."""
        text = f"{run}: {describe_passes(state.log_likelihoods, state.held_out)}"
        if run in self._began and self._began[run][0] < state.n_passes:
            first_pass, started = self._began[run]
            per_pass = (time.monotonic() - started) / (state.n_passes - first_pass)
            text += f", at most {(self._max_passes - state.n_passes) * per_pass:,.0f} s left"
        else:
            # the first pass also compiles kernels and loads blocks: it does not predict those to come
            self._began[run] = state.n_passes, time.monotonic()
        if state.n_passes < self._max_passes:
            self._report(state.n_passes, self._max_passes, text)


def describe_passes(log_likelihoods: Sequence[float], held_out: Sequence[float]) -> str:
    """Last log-likelihoods per sample, nats: of the training samples, and, if there are any, of the held-out ones."""
    parts = []
    if log_likelihoods:
        parts.append(f"log-likelihood {log_likelihoods[-1]:.4f}")
    if held_out:
        best = max(held_out)
        parts.append(f"held out {held_out[-1]:.4f}")
        if best > held_out[-1]:
            parts[-1] += f" (best {best:.4f})"
    return ", ".join(parts)
