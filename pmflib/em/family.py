"""EM for all families of models: what a family defines, the state of a run, the loop, and tests of convergence.

A family of models (latent classes, forests within states, traits, item responses, crowds) is one class derived from
`Family`.
It says four things, as an aggregation of flox does (chunk, combine, finalize), and `run_em` is the
loop for all of them:

1. ``add(parameters, blocks)``: the E-step, sufficient statistics of some blocks of samples. It runs in threads or on
   Dask workers, which receive a pickled copy of the family, so that a family holds small arrays only. An empty block
   adds nothing: it is the zero of the statistics.
2. ``merge(parts)``: sum of statistics in the order given. Equal order gives equal bits on any number of workers. The
   default sums the fields of a dataclass.
3. ``update(state, statistics)``: the M-step. It returns ``state.after(parameters, ...)``.
4. ``pack(parameters)`` and ``unpack(arrays)``: the arrays in which a checkpoint stores parameters.

``score_under`` is needed where held-out samples end the passes or compare models, ``has_converged`` where Aitken's
estimate of the remaining gain is not the right test. ``start`` is overridden by a pass that is more than one map over
the blocks. ``tests/em/guessing_family.py`` is a complete family.
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

from pmflib.core.arrays import Arrays
from pmflib.core.defaults import LIMITS, Limits
from pmflib.display.progress import Report
from pmflib.em.block_source import BlockSource, ScoreUnder, iterate_distinct
from pmflib.em.checkpoint import Checkpoint, digest_fit
from pmflib.model.statistics import sum_fields
from pmflib.solvers.numeric.squarem import Acceleration
from pmflib.store.sample_blocks import BlockGroup

P = TypeVar("P")
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class State(Generic[P]):
    """State of EM after some passes; EM continues from it to the same bits.

    Parameters
    ----------
    parameters
        Current model, under which the next E-step takes the expectation.
    loss_history
        Objective before each pass, nats per sample, negated: minus the log-likelihood and minus the log-density of the
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
        Numbers that a family keeps from pass to pass.
    acceleration
        State of the acceleration; None for plain EM.
    converged
        Whether EM ended because it had converged; False while it runs.
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
        """Number of passes made."""
        return len(self.loss_history)

    @property
    def passes_saved(self) -> float:
        """Number of passes that acceleration has saved so far, by an estimate; 0 without it."""
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
            Objective of that model; None without pseudo-counts, when it is minus the log-likelihood.
        numbers
            New values of ``numbers``.
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
    """Models of one family, with parameters of type ``P`` and sufficient statistics of type ``T``.

    Attributes
    ----------
    offsets
        int64 of shape (n_variables + 1,).
    """

    @abstractmethod
    def add(self, parameters: P, blocks: Iterable[Any]) -> T:
        """Sufficient statistics of blocks of samples under a model: of a `Block`, or what the source holds instead."""

    @staticmethod
    def merge(parts: Sequence[Any]) -> Any:
        """Sum of statistics, at least one, in the order given."""
        return sum_fields(parts)

    @abstractmethod
    def update(self, state: State[P], statistics: T) -> State[P]:
        """State after a pass, from the statistics of all samples under its parameters."""

    @abstractmethod
    def pack(self, parameters: P) -> Arrays:
        """Arrays of a model."""

    @abstractmethod
    def unpack(self, arrays: Arrays) -> P:
        """The model that `pack` was called on, to the same bits."""

    score_under: ScoreUnder[Any]
    """Log-probability of every row of a block under a model, given the offsets of the levels."""

    def measure(self, parameters: P) -> int:
        """Size of the statistics in bytes where they are large; 0 where they are small."""
        return 0

    def start(self, source: BlockSource, state: State[P]) -> Callable[[], T]:
        """Start a pass over a source of blocks, and return a function that waits for its statistics."""
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
        """Held-out log-likelihood of a model, nats per sample; ``meanwhile`` is as for `BlockSource.score`."""
        return held_out.score([parameters], self.score_under, meanwhile=meanwhile)

    def is_best(self, value: float, state: State[P], limits: Limits) -> bool:
        """Whether a held-out log-likelihood is better than all before, at least one."""
        return value > max(state.held_out)

    def has_converged(self, state: State[P], limits: Limits) -> bool:
        """Whether no further pass is needed."""
        if state.held_out:
            return count_stale(state.held_out, limits.tol) >= limits.patience
        return is_near_limit(state.loss_history, limits.tol)

    def finish(self, state: State[P]) -> State[P]:
        """State that a run returns."""
        return state

    def open_checkpoint(
        self, path: Path | None, source: BlockSource, *inputs: object
    ) -> Checkpoint[State[P]] | None:
        """Return the checkpoint of a run, or None without a path.

        Parameters
        ----------
        path
            The file.
        source
            Training samples.
        inputs
            Whatever else the states depend on, as for `digest_fit`.
        """
        if path is None:
            return None
        fit = digest_fit(type(self).__name__, source.digest(), *inputs)
        return Checkpoint(path, fit, self.pack_state, self.unpack_state)

    def pack_state(self, state: State[P]) -> Arrays:
        """Arrays of a state; whether it has converged is found again."""
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
        """The state that `pack_state` was called on, to the same bits."""

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
    """Sufficient statistics of a group of blocks."""
    return family.add(parameters, iterate_distinct(group))


def _take_prefix(arrays: Arrays, prefix: str) -> Arrays:
    """Arrays whose names have a prefix, without it."""
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
