"""Families of models that EM fits: what a family defines, and the state of a run.

A family of models (latent classes, forests within states, traits, item responses, crowds) is one class derived from
`Family`.
It says four things, as an aggregation of flox does (chunk, combine, finalize), and `pmflib.em.driver.run_em` is the
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

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from pmflib.core.arrays import Arrays
from pmflib.core.defaults import Limits
from pmflib.em.block_source import BlockSource, ScoreUnder, iterate_distinct
from pmflib.em.checkpoint import Checkpoint, digest_fit
from pmflib.em.convergence import count_stale, is_near_limit
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
