"""The loop of expectation and maximisation for all families of models, and reports of its passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pmflib.core.defaults import LIMITS, Limits
from pmflib.display.progress import Report
from pmflib.em.block_source import BlockSource
from pmflib.em.checkpoint import Checkpoint
from pmflib.em.family import Family, State

P = TypeVar("P")
T = TypeVar("T")


def run_em(
    family: Family[P, T],
    source: BlockSource,
    start: State[P] | Callable[[], State[P]],
    *,
    held_out: BlockSource | None = None,
    keeps_start: bool = True,
    limits: Limits = LIMITS,
    checkpoint: Checkpoint[State[P]] | None = None,
    on_pass: Callable[[State[P]], None] | None = None,
) -> State[P]:
    """Make passes until EM has converged, or the limit of passes is reached.

    Parameters
    ----------
    family
        Family of models: E-step, M-step and test of convergence.
    source
        Training samples.
    start
        State before the first pass, or a function that makes it; ignored where the checkpoint has a state.
    held_out
        Held-out samples. With them the model with the best held-out log-likelihood is kept in ``best``.
    keeps_start
        Whether the start may be the best model.
    limits
        Limit of passes, counting those of a checkpoint, tolerance and patience.
    checkpoint
        Where the state is saved after each pass, and loaded from.
    on_pass
        Called with the state after each pass, once it is saved.

    Returns
    -------
    The state at the end. Equal arguments give equal bits on any number of threads or workers.

    Raises
    ------
    PmfError
        If a limit is out of range, or the checkpoint is of another fit.

    References
    ----------
    Dempster, Laird, Rubin (1977), Journal of the Royal Statistical Society B 39.
    """
    limits.check()
    pending: list[Callable[[], T]] = []

    def score(state: State[P]) -> State[P]:
        assert held_out is not None

        def start_next() -> None:
            # the next pass starts while workers score this model, unless the score may show that it is not needed
            worst = replace(state, held_out=(*state.held_out, -float("inf")))
            if state.n_passes < limits.max_passes and not family.has_converged(worst, limits):
                pending.append(family.start(source, state))

        value = family.score(held_out, state.parameters, start_next)
        if not state.held_out or family.is_best(value, state, limits):
            state = replace(state, best=state.parameters, best_pass=state.n_passes)
        return replace(state, held_out=(*state.held_out, value))

    state = None if checkpoint is None else checkpoint.load()
    if state is None:
        state = start() if callable(start) else start
        if held_out is not None and not state.held_out:
            kept = replace(state, held_out=(-float("inf"),), best=state.parameters)
            state = score(state) if keeps_start else kept
    while state.n_passes < limits.max_passes and not family.has_converged(state, limits):
        wait = pending.pop() if pending else family.start(source, state)
        state = family.update(state, wait())
        if held_out is not None:
            state = score(state)
        if checkpoint is not None:
            checkpoint.save(state)
        if on_pass is not None:
            on_pass(state)
    return family.finish(replace(state, converged=family.has_converged(state, limits)))


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

    def __call__(self, run: str, state: State[Any]) -> None:
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
