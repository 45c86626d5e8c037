"""EM for all families of models: the contract of a family, the state of a run, the EM loop, and convergence tests.

A family of models (latent classes, forests within states, traits, item responses, crowds) is a class derived from
`Family`. It defines four operations, similar to an aggregation in flox (chunk, combine, finalize); `run_em` is the loop
for all families:

1. ``add(parameters, blocks)``: the E-step, which computes sufficient statistics of some blocks. It runs in threads or
   on Dask workers, which receive a pickled copy of the family, so a family should hold only small arrays. With no rows
   it must return zero statistics.
2. ``merge(parts)``: sums statistics in the given order. Equal order gives equal bits for any number of workers. The
   default sums the fields of a dataclass.
3. ``update(state, statistics)``: the M-step. It returns ``state.after(parameters, ...)``.
4. ``pack(parameters)`` and ``unpack(arrays)``: convert parameters to and from the arrays in a checkpoint.

Define ``score_under`` if held-out samples are used to stop EM or to compare models, and override ``has_converged`` if
Aitken's estimate of the remaining gain is not suitable. Override ``start`` if a pass needs more than one map over the
blocks. ``tests/em/guessing_family.py`` is a complete example.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from pmflib.base.arrays import Arrays
from pmflib.base.defaults import LIMITS, Limits
from pmflib.base.display.progress import Report
from pmflib.em.block_source import BlockSource, ScoreUnder, iterate_distinct
from pmflib.em.checkpoint import Checkpoint, digest_fit
from pmflib.model.sufficient_statistics import sum_fields
from pmflib.papers.squarem import Acceleration
from pmflib.store.sample_blocks import BlockGroup

P = TypeVar("P")
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class State(Generic[P]):
    """State of EM after some passes; EM resumes from it with bit-identical results.

    Parameters
    ----------
    parameters
        Current model, used in the next E-step.
    loss_history
        Objective before each pass, nats per sample, negated: minus the log-likelihood and the log-density of the
        pseudo-counts.
    log_likelihoods
        Training log-likelihood before each pass, nats per sample.
    held_out
        Held-out log-likelihood of the start and after each pass, nats per sample; empty without held-out samples.
    best
        Model with the best held-out log-likelihood; None without held-out samples.
    best_pass
        Number of passes after which that model was reached; without held-out samples, the number of passes.
    numbers
        Numbers that a family keeps between passes.
    acceleration
        State of the acceleration; None for plain EM.
    converged
        Whether EM has converged; False during a run.
    """

    parameters: P
    loss_history: tuple[float, ...] = ()
    log_likelihoods: tuple[float, ...] = ()
    held_out: tuple[float, ...] = ()
    best: P | None = None
    best_pass: int = 0
    numbers: Mapping[str, float] = field(default_factory=dict)
    acceleration: Acceleration | None = None
    converged: bool = False

    @property
    def n_passes(self) -> int:
        """Return the number of passes made."""
        return len(self.loss_history)

    @property
    def passes_saved(self) -> float:
        """Return an estimate of the number of passes saved by acceleration so far; 0 without acceleration."""
        return 0.0 if self.acceleration is None else self.acceleration.passes_saved

    def after(
        self, parameters: P, log_likelihood: float, loss: float | None = None, **numbers: float
    ) -> State[P]:
        """Return the state after one more pass.

        Parameters
        ----------
        parameters
            Updated model.
        log_likelihood
            Training log-likelihood of the model before the update, nats per sample.
        loss
            Objective of that model; None without pseudo-counts, when it equals minus the log-likelihood.
        numbers
            New values for ``numbers``.
        """
        return replace(
            self,
            parameters=parameters,
            loss_history=(*self.loss_history, -log_likelihood if loss is None else loss),
            log_likelihoods=(*self.log_likelihoods, log_likelihood),
            best_pass=self.best_pass if self.held_out else self.n_passes + 1,
            numbers={**self.numbers, **numbers},
        )


class Family(ABC, Generic[P, T]):
    """Base class of model families, with parameters of type ``P`` and sufficient statistics of type ``T``.

    Attributes
    ----------
    offsets
        int64 of shape (n_variables + 1,).
    """

    @abstractmethod
    def add(self, parameters: P, blocks: Iterable[Any]) -> T:
        """Compute the sufficient statistics of blocks (`Block`, or the type used by the source) under a model."""

    @staticmethod
    def merge(parts: Sequence[Any]) -> Any:
        """Sum statistics, at least one, in the given order."""
        return sum_fields(parts)

    @abstractmethod
    def update(self, state: State[P], statistics: T) -> State[P]:
        """Return the state after a pass, given the statistics of all samples under its parameters."""

    @abstractmethod
    def pack(self, parameters: P) -> Arrays:
        """Convert a model to arrays."""

    @abstractmethod
    def unpack(self, arrays: Arrays) -> P:
        """Restore the model given to `pack`, bit for bit."""

    score_under: ScoreUnder[Any]
    """Given a model and level offsets, returns a function that computes the log-probability of each row of a block."""

    def measure(self, parameters: P) -> int:
        """Return the size of the statistics in bytes if they are large, and 0 otherwise."""
        return 0

    def is_plain(self, state: State[P]) -> bool:
        """Return whether the next pass is a single map of `add` over the blocks, as by default."""
        return True

    def start(self, source: BlockSource, state: State[P]) -> Callable[[], T]:
        """Start a pass over a source of blocks and return a function that waits for its statistics."""
        return source.start(
            add_group,
            self.merge,
            self,
            state.parameters,
            result_bytes=self.measure(state.parameters),
            name="pass",
        )

    def score(
        self,
        held_out: BlockSource,
        parameters: P,
        meanwhile: Callable[[], None] | None = None,
    ) -> float:
        """Compute the held-out log-likelihood, nats per sample; ``meanwhile`` is as for `BlockSource.score`."""
        return held_out.score([parameters], self.score_under, meanwhile=meanwhile)

    def is_best(self, value: float, state: State[P], limits: Limits) -> bool:
        """Return whether a held-out log-likelihood exceeds all previous ones, at least one."""
        return value > max(state.held_out)

    def has_converged(self, state: State[P], limits: Limits) -> bool:
        """Return whether to stop."""
        if state.held_out:
            return count_stale(state.held_out, limits.tol) >= limits.patience
        return is_near_limit(state.loss_history, limits.tol)

    def finish(self, state: State[P]) -> State[P]:
        """Return the state that a run ends with."""
        return state

    def open_checkpoint(
        self, path: Path | None, source: BlockSource, *inputs: object
    ) -> Checkpoint[State[P]] | None:
        """Open the checkpoint of a run; return None without a path.

        Parameters
        ----------
        path
            Path of the checkpoint file.
        source
            Training samples.
        inputs
            Other inputs that determine the states, as for `digest_fit`.
        """
        if path is None:
            return None
        fit = digest_fit(type(self).__name__, source.digest(), *inputs)
        return Checkpoint(path, fit, self.pack_state, self.unpack_state)

    def pack_state(self, state: State[P]) -> Arrays:
        """Convert a state to arrays; convergence is not stored but tested again."""
        arrays = {
            name: np.array(getattr(state, name))
            for name in ("loss_history", "log_likelihoods", "held_out", "best_pass")
        }
        arrays |= {f"number-{name}": np.array(value) for name, value in state.numbers.items()}
        models: dict[str, Any] = {"current": state.parameters, "best": state.best}
        if (acceleration := state.acceleration) is not None:
            steps = [acceleration.step_length, acceleration.longest, acceleration.passes_saved]
            arrays["acceleration"] = np.array(steps)
            models |= {"origin": acceleration.origin, "fallback": acceleration.fallback}
        for which, model in models.items():
            if model is not None:
                arrays |= {f"{which}-{name}": array for name, array in self.pack(model).items()}
        return arrays

    def unpack_state(self, arrays: Arrays) -> State[P]:
        """Restore the state given to `pack_state`, bit for bit."""

        def find(which: str) -> Any:
            found = _take_prefix(arrays, which)
            return self.unpack(found) if found else None

        acceleration = None
        if "acceleration" in arrays:
            steps = arrays["acceleration"].tolist()
            acceleration = Acceleration(find("origin"), find("fallback"), *steps)
        histories = ("loss_history", "log_likelihoods", "held_out")
        losses, log_likelihoods, held_out = (tuple(arrays[name].tolist()) for name in histories)
        return State(
            find("current"),
            losses,
            log_likelihoods,
            held_out,
            best=find("best"),
            best_pass=int(arrays["best_pass"]),
            numbers={name: float(x) for name, x in _take_prefix(arrays, "number").items()},
            acceleration=acceleration,
        )


def add_group(group: BlockGroup, family: Family[P, T], parameters: P) -> T:
    """Compute the sufficient statistics of a group of blocks."""
    return family.add(parameters, iterate_distinct(group))


def _take_prefix(arrays: Arrays, prefix: str) -> Arrays:
    """Return the arrays whose names have a prefix, with the prefix removed."""
    start = f"{prefix}-"
    return {
        name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)
    }


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
    """Run EM until it converges or reaches the limit of passes.

    Parameters
    ----------
    family
        Family of models, which defines the E-step, the M-step and the convergence test.
    source
        Training samples.
    start
        State before the first pass, or a function that returns it; ignored if the checkpoint contains a state.
    held_out
        Held-out samples. If given, the model with the best held-out log-likelihood is stored in ``best``.
    keeps_start
        Whether the start is eligible as the best model.
    limits
        Maximum number of passes (including those before a resumed checkpoint), tolerance and patience.
    checkpoint
        Checkpoint to resume from and to save the state in after each pass.
    on_pass
        Called with the state after each pass, once it is saved.

    Returns
    -------
    The final state. Equal arguments give equal bits for any number of threads or workers.

    Raises
    ------
    PmfError
        If a limit is out of range, or the checkpoint belongs to another fit.

    References
    ----------
    Dempster, Laird, Rubin (1977), Journal of the Royal Statistical Society B 39.
    """
    limits.check()
    pending: list[Callable[[], T]] = []

    def score(state: State[P]) -> State[P]:
        assert held_out is not None

        def start_next() -> None:
            # the next pass starts while workers score this model, unless the score may end the run
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
    """Reports the passes of a fit, in the form that `pmflib.fit_em` takes as ``on_pass``.

    Sequential and concurrent runs are identified by their names.

    Parameters
    ----------
    report
        Called after each pass except the last allowed one, with the number of passes, their limit and a message.
    max_passes
        Maximum number of passes of each run.
    """

    def __init__(self, report: Report, max_passes: int) -> None:
        self._report, self._max_passes = report, max_passes
        self._began: dict[str, tuple[int, float]] = {}

    def __call__(self, run: str, state: State[Any]) -> None:
        """Report one pass of a run."""
        text = f"{run}: {describe_passes(state.log_likelihoods, state.held_out)}"
        if run in self._began and self._began[run][0] < state.n_passes:
            first_pass, started = self._began[run]
            per_pass = (time.monotonic() - started) / (state.n_passes - first_pass)
            text += f", at most {(self._max_passes - state.n_passes) * per_pass:,.0f} s left"
        else:
            # the first pass also compiles kernels and loads blocks, so its duration is not representative
            self._began[run] = state.n_passes, time.monotonic()
        if state.n_passes < self._max_passes:
            self._report(state.n_passes, self._max_passes, text)


def describe_passes(log_likelihoods: Sequence[float], held_out: Sequence[float]) -> str:
    """Format the latest log-likelihoods per sample, nats: training and, if available, held-out."""
    parts = []
    if log_likelihoods:
        parts.append(f"log-likelihood {log_likelihoods[-1]:.4f}")
    if held_out:
        best = max(held_out)
        parts.append(f"held out {held_out[-1]:.4f}")
        if best > held_out[-1]:
            parts[-1] += f" (best {best:.4f})"
    return ", ".join(parts)


def is_near_limit(losses: Sequence[float], tol: float) -> bool:
    """Return whether the estimated remaining gain is small.

    Parameters
    ----------
    losses
        Objective before each pass, non-increasing.
    tol
        Tolerance as a fraction of the objective, at least 0.
    """
    return bool(losses) and estimate_gap(losses) <= tol * abs(losses[-1])


def has_converged(losses: Sequence[float], tol: float, n_passes: int) -> bool:
    """Return whether the total gain of the last passes is small.

    Suitable for accelerated EM, where the gain of one pass does not predict the next. Passes after a long step are
    short, and while states are still similar the objective may stall for some passes before it falls again.

    Parameters
    ----------
    losses
        Objective before each pass, non-increasing.
    tol
        Tolerance as a fraction of the objective, at least 0.
    n_passes
        Number of passes to consider, at least 1.
    """
    return len(losses) > n_passes and losses[-1 - n_passes] - losses[-1] <= tol * abs(losses[-1])


def estimate_gap(losses: Sequence[float]) -> float:
    """Estimate the remaining decrease of a linearly converging sequence by Aitken extrapolation.

    Parameters
    ----------
    losses
        Decreasing values, nats per sample.

    Returns
    -------
    Estimate of the last value minus the limit, exact for a geometric sequence. Infinite while changes grow or are too
    few for an estimate.

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
    """Count the passes since the held-out log-likelihood last improved by more than a fraction of its value.

    Parameters
    ----------
    held_out
        Log-likelihood of the start and after each pass.
    tol
        The fraction, at least 0.
    """
    risen, level = 0, held_out[0]
    for passes, value in enumerate(held_out):
        if value > level + tol * abs(level):
            risen, level = passes, value
    return len(held_out) - 1 - risen
