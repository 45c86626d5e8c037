"""EM for latent transition models: the family, whose tables and updates are those of latent classes.

The expected counts of a chain are those of latent classes: of initial states, and of levels given states, where the
levels of a transition matrix are the next states. Only the pass over samples differs, which runs backward and forward
along the waves of each person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray, Parameters, normalise_blocks, spread_evenly
from pmflib.core.blocks import Block
from pmflib.em.block_source import BlockSource
from pmflib.em.blocks import ScoreRows
from pmflib.em.family import Family
from pmflib.em.latent_classes import ClassState, LatentClasses
from pmflib.model.statistics import EMStatistics, sum_fields
from pmflib.model.transitions import Chain, ChainLayout, sum_paths
from pmflib.solvers import PseudoCounts
from pmflib.solvers.pairs.pair_matrix import start_random

STAYING = (0.2, 0.9)
"""Range of the share of people who keep their state in random starts, beyond those who return by chance."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Transitions(LatentClasses):
    """Latent transition models; a model is its initial shares and tables, as `ChainLayout` lays them out.

    Parameters
    ----------
    offsets, pseudo_counts, n_members, accelerate
        As for `LatentClasses`, of the tables; there is one member.
    layout
        Ties between levels and tables.
    n_least
        Number of waves up to which transitions are counted at least. All of them give the entropy of paths; those up to
        each person's last answer, the default, tell as much and are faster.

    References
    ----------
    Baum, Petrie, Soules, Weiss (1970), Annals of Mathematical Statistics 41(1); Collins, Lanza (2010), Latent Class and
    Latent Transition Analysis, chapter 7.
    """

    layout: ChainLayout
    n_least: int = 0

    @classmethod
    def make(
        cls, layout: ChainLayout, singles: FloatArray, rank: int, pseudo_count: float = 0.0
    ) -> Self:
        """Make the family of models with some number of states.

        Parameters
        ----------
        layout
            As for the class.
        singles
            float64 of shape (n_base_levels,): PMF of each question, as `measure_singles` returns it.
        rank
            Number of states.
        pseudo_count
            Mean pseudo-count per level and state, at least 0; the levels of transitions are the next states.
        """
        shaped = PseudoCounts.shaped_by(singles, layout.base_offsets, pseudo_count)
        moves = np.full(layout.n_matrices * rank, float(pseudo_count))
        counts = PseudoCounts(np.concatenate([shaped.levels, moves]), shaped.state)
        return cls(
            offsets=layout.find_offsets(rank), pseudo_counts=counts, accelerate=True, layout=layout
        )

    def draw(self, singles: FloatArray, rank: int, rng: np.random.Generator) -> ClassState:
        """Return the state before the first pass of a random start."""
        prior, factors = start_random(singles, self.layout.base_offsets, rank=rank, rng=rng)
        stay = rng.uniform(*STAYING)
        moves = stay * np.eye(rank) + (1 - stay) / rank
        tables = np.concatenate([factors, *[moves] * self.layout.n_matrices])
        return self.begin([(prior, tables)])

    def add(self, parameters: Parameters, blocks: Iterable[Block]) -> EMStatistics:
        """Compute the expected counts of initial states, of levels by state, and of transitions."""
        chain = self.layout.split(parameters).log_emissions()
        return sum_fields([self._add_block(block, chain) for block in blocks])

    def _add_block(self, block: Block, chain: Chain) -> EMStatistics:
        rank = chain.initial.size
        states, tables = np.zeros((1, rank)), np.zeros((1, int(self.offsets[-1]), rank))
        log_likelihood = sum_paths(block, self.layout, chain, states, tables, self.n_least)
        return EMStatistics(tables[0], states[0], log_likelihood, block.n_samples)

    def start(self, source: BlockSource, state: ClassState) -> Callable[[], EMStatistics]:
        """Start a pass."""
        return Family.start(self, source, state)

    def measure(self, parameters: Parameters) -> int:
        """Return the size of the expected counts in bytes."""
        return parameters[0].nbytes + parameters[1].nbytes

    def score(
        self,
        held_out: BlockSource,
        parameters: Parameters,
        meanwhile: Callable[[], None] | None = None,
    ) -> float:
        """Compute the held-out log-likelihood, nats per sample."""
        return Family.score(self, held_out, parameters, meanwhile)

    def score_under(self, parameters: Parameters, _: IntArray) -> ScoreRows:
        """Return a function that scores rows under a model, of any rank; logarithms are computed once."""
        chain = self.layout.split(parameters).log_emissions()
        return lambda block: self.layout.score(block, chain)


def measure_singles(source: BlockSource, layout: ChainLayout) -> FloatArray:
    """Compute the PMF of each question over all waves that share its table, in one pass: (n_base_levels,)."""
    even = spread_evenly(layout.base_offsets)
    tables = np.concatenate([even, np.ones(layout.n_matrices)])[:, None]
    family = Transitions.make(layout, even, 1)
    found = family.start(source, family.begin([(np.ones(1), tables)]))()
    return normalise_blocks(found.level_mass[: even.size, 0], layout.base_offsets, even)
