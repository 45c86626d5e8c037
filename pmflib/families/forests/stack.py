"""Forests in a stack: rungs from random starts, and mixtures of forests with latent classes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.pseudo_counts import PseudoCounts
from pmflib.cluster.memory import MemoryPlan
from pmflib.em.block_source import ScoreUnder
from pmflib.em.family import Family, State
from pmflib.families.forests.em import (
    Forests,
    TreeOptions,
    are_modest,
    plan_trees,
    score_under_forests,
)
from pmflib.families.forests.forest import Forest
from pmflib.families.forests.statistics import TreeParameters
from pmflib.families.forests.tree_fit import PLAIN_PASSES, estimate_run
from pmflib.families.forests.tree_pmf import TreePMF
from pmflib.fits.stack.ladder import LadderSizes, Rung, RungStart
from pmflib.model import JointPMF
from pmflib.model.origin import ModelOrigin
from pmflib.papers.pair_matrix import start_random
from pmflib.schema import Schema

FOREST_RANKS = {1: 1, 2: 4, 3: 16, 4: 64, 5: 256}
"""Number of states of each member, by step of the ladder."""
MEMBER_SHARE = 3
"""Latent classes of an average per model with forests: these are rungs of their own, with different options."""
OPTIONS = (
    TreeOptions(),
    TreeOptions(edge_pseudo_count=1.0, penalty=0.5),
    TreeOptions(edge_pseudo_count=0.3, penalty=0.5),
    TreeOptions(edge_pseudo_count=16.0),
)
"""Options of the models of a step in turn; with equal options for all, stacks were worse on the tables tried."""


@dataclass(frozen=True, eq=False)
class ForestRung(Rung):
    """States with forests of their own from a random start, stopped where held-out samples are likeliest.

    The number of the rung determines its start and its options.
    """

    kind: ClassVar[str] = "forests"
    score_under: ClassVar[ScoreUnder[Any]] = staticmethod(score_under_forests)

    @property
    def name(self) -> str:
        """Name in tables."""
        if self.rank == 1:
            return "one forest"
        return f"forests within {self.rank} states, {self.number + 1}"

    def begin(self, start: RungStart) -> list[tuple[Family[Any, Any], State[Any]]]:
        """Return the only run; forests are first searched after some passes without edges."""
        offsets = start.offsets
        rng = np.random.default_rng([start.seed, self.rank, self.number])
        prior, factors = start_random(start.singles, offsets, rank=self.rank, rng=rng)
        plain = TreeParameters.plain(prior, factors, offsets)
        return self._run(plain, start, PLAIN_PASSES if self.rank > 1 else 0)

    def _run(
        self, parameters: TreeParameters, start: RungStart, due: int
    ) -> list[tuple[Family[Any, Any], State[Any]]]:
        options = OPTIONS[self.number % len(OPTIONS)]._replace(pseudo_count=self.pseudo_count)
        shape = PseudoCounts.shaped_by(start.singles, start.offsets, self.pseudo_count)
        family = Forests(start.offsets, options, shape)
        return [(family, family.begin(parameters, due))]

    def read(self, model: JointPMF, states: slice) -> Any:
        """Return prior, forests and tables of the states."""
        assert isinstance(model, TreePMF)
        prior, forest, tables = model.parameters
        own = (forest.states >= states.start) & (forest.states < states.stop)
        parents = Forest(forest.parents[states], forest.offsets)
        return TreeParameters(prior[states] / prior[states].sum(), parents, tables[own])

    def resume(
        self, parameters: Any, start: RungStart
    ) -> list[tuple[Family[Any, Any], State[Any]]]:
        """Return the only run; the forests stay as they are."""
        return self._run(parameters, start, sys.maxsize)

    def join(self, parameters: Sequence[Any]) -> Any:
        """Return the parameters of the only run."""
        (joined,) = parameters
        return joined

    def make(self, parameters: Any, schema: Schema, origin: ModelOrigin) -> JointPMF:
        """Make the model of joined parameters."""
        return TreePMF.make(parameters, schema, origin)

    def plan(self, offsets: IntArray, n_threads: int, n_waiting: int) -> MemoryPlan:
        """Plan the memory of a pass."""
        return plan_trees(offsets, self.rank, n_threads, n_waiting=n_waiting)


def offer_forests(sizes: LadderSizes, pseudo_count: float) -> list[Rung]:
    """Return the rungs with forests that the sizes allow."""
    rungs = list[Rung]()
    for step, rank in FOREST_RANKS.items():
        if not are_modest(sizes.offsets, rank) or step > sizes.limits.steps:
            break
        if not sizes.supports(rank):
            break
        most = -(-sizes.limits.members // MEMBER_SHARE) if rank > 1 else 1
        members = sizes.count_members(most, estimate_run(sizes.offsets, sizes.n_rows, rank))
        rungs += [ForestRung(step, rank, 1, pseudo_count, k) for k in range(members)]
    return rungs


def mix_forests(
    models: Sequence[JointPMF], weights: FloatArray, schema: Schema, origin: ModelOrigin
) -> JointPMF:
    """Join models with forests and latent classes, whose states have no edges, into one model with forests."""
    parts = [
        model.parameters
        if isinstance(model, TreePMF)
        else TreeParameters.plain(model.prior, model.factors, schema.offsets)
        for model in models
    ]
    joined = TreeParameters(
        np.concatenate([w * each.prior for w, each in zip(weights, parts, strict=True)]),
        Forest.join([each.forest for each in parts]),
        np.concatenate([each.tables for each in parts]),
    )
    factors = np.concatenate([model.factors for model in models], axis=1)
    return TreePMF(
        joined.prior, factors, schema, origin, forest=joined.forest, tables=joined.tables
    )
