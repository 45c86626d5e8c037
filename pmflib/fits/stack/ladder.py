"""The rungs of a ladder: which models are fitted for a stack, by the sizes of the data and the effort."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, Parameters
from pmflib.base.errors import PmfError
from pmflib.base.hooks import find_offers
from pmflib.base.pseudo_counts import PseudoCounts
from pmflib.cluster.memory import MemoryPlan
from pmflib.em.block_source import ScoreUnder
from pmflib.em.blocks import score_under_classes
from pmflib.em.family import Family, State
from pmflib.em.latent_classes import LatentClasses, split_members
from pmflib.em.memory import plan_em
from pmflib.model import JointPMF
from pmflib.model.origin import ModelOrigin
from pmflib.model.rungs import RungFit
from pmflib.papers.pair_matrix import start_random
from pmflib.schema import Schema

Effort: TypeAlias = Literal["quick", "normal", "thorough"]
"""How long a ladder is."""


class EffortLimits(NamedTuple):
    """What an effort allows.

    Parameters
    ----------
    members
        Number of models that a rung of latent classes averages.
    seconds
        Processor time of the passes of a rung, by the cost model, above which it has fewer members, or is left out;
        of more than ``FULL_CELLS`` observed cells, so much for each.
    steps
        Last step of the ladder.
    """

    members: int
    seconds: float
    steps: int


EFFORTS: dict[str, EffortLimits] = {
    "quick": EffortLimits(4, 3.0, 3),
    "normal": EffortLimits(10, 20.0, 4),
    "thorough": EffortLimits(20, 120.0, 5),
}
"""Limits by effort. ``python -m benchmarks.models.stacks --efforts`` prints what each costs and gains."""

CLASS_RANKS = {0: 1, 2: 20, 3: 100, 4: 400, 5: 1000}
"""Number of states of each member of an average of latent classes, by step."""
PSEUDO_COUNT = 0.3
"""Pseudo-count of all rungs unless one is given: early stopping shrinks, too. 1 was worse on all tables tried."""
CELLS_PER_PARAMETER = 3
"""Observed cells per entry of a member's factors below which a rung is left out, except a single state."""
MOST_ENTRIES = 40_000_000
"""Largest number of entries of the factors of a rung: 320 MB."""
TARGET_FITS = ((1, 1.0), (1, 10.0), (2, 0.1), (2, 1.0), (2, 10.0), (4, 0.1), (4, 1.0))
"""Fits to a target: states per level, and pseudo-count: few where the other variables almost determine the target, many
where they are weakly related to it.
"""
PASS_SECONDS = 4e-10
"""Time of an EM pass per observed cell and state, on one core of a 2023 server. It is a constant, never measured, so
that a ladder is the same on every machine and for any number of workers.
"""
FULL_CELLS = 5_000_000
"""Observed cells from which on the time for a rung grows with them, and the ladder does not."""
USUAL_PASSES = 40
"""Typical number of passes until held-out samples stop a rung."""


@dataclass(frozen=True, eq=False)
class LadderSizes:
    """Sizes of data and effort that determine a ladder.

    Parameters
    ----------
    offsets
        int64 of shape (n_variables + 1,).
    n_rows, n_observed
        Numbers of training samples and of their observed cells.
    limits
        Limits of the effort.
    """

    offsets: IntArray
    n_rows: int
    n_observed: int
    limits: EffortLimits

    def supports(self, rank: int) -> bool:
        """Return whether there are enough observed cells for the parameters of a model."""
        return rank == 1 or CELLS_PER_PARAMETER * rank * int(self.offsets[-1]) <= self.n_observed

    def count_members(self, members: int, seconds: float) -> int:
        """Return how many members, each of so many seconds, a rung can have: at most ``members``; 0 if not one."""
        allowed = self.limits.seconds * max(1.0, self.n_observed / FULL_CELLS)
        return min(members, int(allowed / max(seconds, 1e-9)))


class RungStart(NamedTuple):
    """What starting values are made from.

    Parameters
    ----------
    singles
        float64 of shape (n_levels,), PMF of each variable.
    offsets
        int64 of shape (n_variables + 1,).
    seed
        Seed of random starts.
    read_bayes
        Returns naive Bayes of the training samples, for a target.
    fit_target
        Returns states that predict the target of the training samples, given their number and a pseudo-count.
    """

    singles: FloatArray
    offsets: IntArray
    seed: int
    read_bayes: Callable[[], Parameters]
    fit_target: Callable[[int, float], Parameters]


@dataclass(frozen=True, eq=False)
class Rung(ABC):
    """Some models of one kind and rank, averaged with equal weights.

    Parameters
    ----------
    step
        Step of the ladder: rungs of a step are fitted in the same passes.
    rank, members
        Number of states of each model, and number of models.
    pseudo_count
        Mean pseudo-count per level and state.
    number
        Number among the rungs of the same kind and rank, from 0.
    """

    kind: ClassVar[str]

    step: int
    rank: int
    members: int
    pseudo_count: float
    number: int = 0

    score_under: ClassVar[ScoreUnder[Any]]
    """Scores rows under joined parameters: as in `Family`."""

    @property
    def n_states(self) -> int:
        """Number of states of all members."""
        return self.rank * self.members

    @property
    def is_complete(self) -> bool:
        """Whether the start is the model, to which passes are not applied."""
        return False

    @property
    @abstractmethod
    def name(self) -> str:
        """Name in tables."""

    @abstractmethod
    def begin(self, start: RungStart) -> list[tuple[Family[Any, Any], State[Any]]]:
        """Return the EM runs of the rung before their first pass: one or more, in a fixed order."""

    @abstractmethod
    def read(self, model: JointPMF, states: slice) -> Any:
        """Return the joined parameters from a mixture in which the rung has some states."""

    @abstractmethod
    def resume(
        self, parameters: Any, start: RungStart
    ) -> list[tuple[Family[Any, Any], State[Any]]]:
        """Return the EM runs of the rung from joined parameters; what they consist of stays."""

    @abstractmethod
    def join(self, parameters: Sequence[Any]) -> Any:
        """Join the parameters of the runs into those of their average."""

    @abstractmethod
    def make(self, parameters: Any, schema: Schema, origin: ModelOrigin) -> JointPMF:
        """Make the model of joined parameters."""

    @abstractmethod
    def plan(self, offsets: IntArray, n_threads: int, n_waiting: int) -> MemoryPlan:
        """Plan the memory of a pass: see `pmflib.em.memory.PassMemory.plan`."""


@dataclass(frozen=True, eq=False)
class ClassRung(Rung):
    """Latent classes from random starts, stopped where their average is best."""

    kind: ClassVar[str] = "classes"
    score_under: ClassVar[ScoreUnder[Any]] = staticmethod(score_under_classes)

    @property
    def name(self) -> str:
        """Name in tables."""
        return "one state" if self.rank == 1 else f"{self.members} x {self.rank} classes"

    def begin(self, start: RungStart) -> list[tuple[Family[Any, Any], State[Any]]]:
        """Return one run of all members."""
        return self._run(self._make_starts(start), start)

    def _run(
        self, models: Sequence[Parameters], start: RungStart
    ) -> list[tuple[Family[Any, Any], State[Any]]]:
        shape = PseudoCounts.shaped_by(start.singles, start.offsets, self.pseudo_count)
        family = LatentClasses(start.offsets, shape, len(models))
        return [(family, family.begin(models))]

    def _make_starts(self, start: RungStart) -> list[Parameters]:
        if self.rank == 1:
            return [(np.ones(1), start.singles[:, None])]
        seeds = [[start.seed, self.rank, k] for k in range(self.members)]
        return [
            start_random(
                start.singles, start.offsets, rank=self.rank, rng=np.random.default_rng(seed)
            )
            for seed in seeds
        ]

    def read(self, model: JointPMF, states: slice) -> Any:
        """Return prior and factors of the states."""
        prior = model.prior[states]
        return prior / prior.sum(), np.ascontiguousarray(model.factors[:, states])

    def resume(
        self, parameters: Any, start: RungStart
    ) -> list[tuple[Family[Any, Any], State[Any]]]:
        """Return one run of all members."""
        return self._run(split_members(parameters, self.members), start)

    def join(self, parameters: Sequence[Any]) -> Any:
        """Return the parameters of the only run, which are those of the average."""
        (joined,) = parameters
        return joined

    def make(self, parameters: Any, schema: Schema, origin: ModelOrigin) -> JointPMF:
        """Make the model of joined parameters."""
        prior, factors = parameters
        return JointPMF(prior, factors, schema, origin)

    def plan(self, offsets: IntArray, n_threads: int, n_waiting: int) -> MemoryPlan:
        """Plan the memory of a pass."""
        sizes = int(offsets[-1]), self.rank, n_threads, self.members
        return plan_em(*sizes, n_waiting=n_waiting)


@dataclass(frozen=True, eq=False)
class BayesRung(ClassRung):
    """Naive Bayes for a target: one state per level, in closed form."""

    kind: ClassVar[str] = "naive Bayes"

    @property
    def is_complete(self) -> bool:
        """Whether the start is the model: it is."""
        return True

    @property
    def name(self) -> str:
        """Name in tables."""
        return "naive Bayes"

    def _make_starts(self, start: RungStart) -> list[Parameters]:
        return [start.read_bayes()]


@dataclass(frozen=True, eq=False)
class TargetRung(BayesRung):
    """States assigned to the levels of a target and fitted to predict it: see the hook ``"target_fits"``."""

    kind: ClassVar[str] = "target"

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"{self.rank} states for the target, pseudo-count {self.pseudo_count:g}"

    def _make_starts(self, start: RungStart) -> list[Parameters]:
        return [start.fit_target(self.rank, self.pseudo_count)]


def offer_for_target(cardinality: int, pseudo_count: float) -> list[Rung]:
    """Return the rungs of a target with some number of levels: naive Bayes, and fits to it if a feature makes them."""
    rungs: list[Rung] = [BayesRung(1, cardinality, 1, pseudo_count)]
    if "classes" in find_offers("target_fits"):
        rungs += [TargetRung(1, multiple * cardinality, 1, each) for multiple, each in TARGET_FITS]
    return rungs


def offer_classes(sizes: LadderSizes, pseudo_count: float) -> list[Rung]:
    """Return the rungs of latent classes: one state, and averages; the smallest average has one member at least."""
    n_levels, rungs = int(sizes.offsets[-1]), list[Rung]()
    for step, rank in CLASS_RANKS.items():
        members = sizes.limits.members if rank > 1 else 1
        seconds = USUAL_PASSES * PASS_SECONDS * sizes.n_observed * rank
        members = min(sizes.count_members(members, seconds), MOST_ENTRIES // (n_levels * rank))
        if step <= 2:
            members = max(members, 1)
        if members and sizes.supports(rank) and step <= sizes.limits.steps:
            rungs.append(ClassRung(step, rank, members, pseudo_count))
    return rungs


def read_rungs(model: JointPMF, pseudo_count: float) -> list[tuple[Rung, Any, float]]:
    """Return the rungs of a stack with their joined parameters and weights.

    Parameters
    ----------
    model
        Stack, with a pseudo-count of the further passes.

    Raises
    ------
    PmfError
        If a rung cannot be fitted further.
    """
    found, first = list[tuple[Rung, Any, float]](), 0
    kinds = find_offers("kinds")
    for each in map(RungFit.from_json, model.origin["stack"]):
        make = ClassRung if each.kind == "classes" else None
        if each.kind in kinds:
            make = kinds[each.kind].rung
        if make is None:
            raise PmfError(
                f"model has {each.name} among its rungs, which EM would undo; leave the model out, and fit a new stack"
            )
        rung = make(0, each.states, each.members, pseudo_count, each.number)
        states = slice(first, first + rung.n_states)
        found.append((rung, rung.read(model, states), each.weight))
        first = states.stop
    return found


def mix_models(
    models: Sequence[JointPMF], weights: FloatArray, schema: Schema, origin: ModelOrigin
) -> JointPMF:
    """Join models of one schema into one mixture of all their states.

    Parameters
    ----------
    models
        Models, at least one.
    weights
        float64 of shape (n_models,): weights, which sum to 1.
    schema, origin
        Of the mixture.
    """
    if len(models) == 1:
        return models[0]
    if all(type(model) is JointPMF for model in models):
        parts = [(w * model.prior, model.factors) for w, model in zip(weights, models, strict=True)]
        prior = np.concatenate([each for each, _ in parts])
        factors = np.concatenate([each for _, each in parts], axis=1)
        return JointPMF(prior, factors, schema, origin)
    (kind,) = {model.kind for model in models} - {"classes"}
    mix: Callable[..., JointPMF] = find_offers("kinds")[kind].mix
    return mix(models, weights, schema, origin)
