"""Progress of EM in words: log-likelihoods, and how long it may still take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from pmflib.reporting.work_progress import Report


class PassedState(Protocol):
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

    def __call__(self, run: str, state: PassedState) -> None:
        """Report a pass of a run."""
        text = f"{run}: {describe_fit(state.log_likelihoods, state.held_out)}"
        if run in self._began and self._began[run][0] < state.n_passes:
            first_pass, started = self._began[run]
            per_pass = (time.monotonic() - started) / (state.n_passes - first_pass)
            text += f", at most {(self._max_passes - state.n_passes) * per_pass:,.0f} s left"
        else:
            # the first pass also compiles kernels and loads blocks: it does not predict those to come
            self._began[run] = state.n_passes, time.monotonic()
        if state.n_passes < self._max_passes:
            self._report(state.n_passes, self._max_passes, text)


def describe_fit(log_likelihoods: Sequence[float], held_out: Sequence[float]) -> str:
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
