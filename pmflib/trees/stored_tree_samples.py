"""Samples in a store for latent classes with forests: passes are maps over groups of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.em.block_scores import AddScores, ScoreRows, score_average, score_difference
from pmflib.em.members import merge_scores
from pmflib.em.stored_samples import StoredSamples, iterate_distinct, judge_group
from pmflib.selection.comparison import PairedDifference, estimate_gain
from pmflib.store.sample_blocks import BlockGroup
from pmflib.trees.memory import choose_states
from pmflib.trees.tree_statistics import TreeParameters, TreePasses, TreeStatistics, fill_below


@dataclass(frozen=True, eq=False)
class StoredTreeSamples:
    """Stored samples: a `pmflib.trees.passed_samples.Samples`.

    Blocks are read, kept and dealt to workers as `StoredSamples` does it, and results merged in a tree that depends on
    the dataset alone: the same bits with any number of workers, and without any.

    Parameters
    ----------
    samples
        The samples, with the client that works and the target that models are judged by.
    """

    samples: StoredSamples

    @property
    def offsets(self) -> IntArray:
        """int64 of shape (n_variables + 1,)."""
        return self.samples.schema.offsets

    def add_up(self, parameters: TreeParameters) -> TreeStatistics:
        """Sufficient statistics of all samples under a model."""
        n_bytes = 8 * (parameters.forest.n_entries + parameters.prior.size)
        shared = self.offsets, parameters
        return self.samples.map_groups(
            add_up_group, TreeStatistics.merge, *shared, result_bytes=n_bytes, name="pass"
        )

    def score(self, models: Sequence[TreeParameters]) -> float:
        """Log-likelihood under the average of models, at least one; nats per sample, 0 without samples."""
        total, n_samples = self._add_scores(score_average, [list(models)])
        return float(total / max(n_samples, 1))

    def compare(
        self, first: Sequence[TreeParameters], second: Sequence[TreeParameters]
    ) -> PairedDifference:
        """Mean gain of a sample by the average of the first models over that of the second, nats, and its error."""
        return estimate_gain(self._add_scores(score_difference, [list(first), list(second)]))

    def count_pairs(self, parameters: TreeParameters, first: int, n_states: int) -> FloatArray:
        """Posterior-weighted counts of all pairs, symmetric, for some states: (n_states, n_levels, n_levels)."""
        n_bytes = 8 * n_states * int(self.offsets[-1]) ** 2
        shared = self.offsets, parameters, first, n_states
        mass = self.samples.map_groups(
            count_group, add_tables, *shared, result_bytes=n_bytes, name="pairs"
        )
        fill_below(mass)
        return mass

    def count_side_by_side(self) -> int:
        """Number of states whose pairs are counted at a time."""
        return choose_states(int(self.offsets[-1]))

    def _add_scores(
        self, add: AddScores, averages: Sequence[Sequence[TreeParameters]]
    ) -> FloatArray:
        """Sums of scores under averages of models over all samples."""
        shared = self.offsets, add, score_under_forests, averages, self.samples.target
        return self.samples.map_groups(judge_group, merge_scores, *shared, name="score")


def add_up_group(
    group: BlockGroup, offsets: IntArray, parameters: TreeParameters
) -> TreeStatistics:
    """Sufficient statistics of a group of blocks under a model."""
    passes = TreePasses(parameters)
    return TreeStatistics.merge([passes.add_up(block) for block in iterate_distinct(group)])


def score_under_forests(parameters: TreeParameters, _: IntArray) -> ScoreRows:
    """Scores of rows under a model with forests; its logarithms are taken once."""
    return TreePasses(parameters).score


def count_group(
    group: BlockGroup, offsets: IntArray, parameters: TreeParameters, first: int, n_states: int
) -> FloatArray:
    """Posterior-weighted counts of the pairs of a group: (n_states, n_levels, n_levels), the upper triangle."""
    passes = TreePasses(parameters)
    n_levels = int(offsets[-1])
    mass = np.zeros((n_states, n_levels, n_levels))
    for block in iterate_distinct(group):
        passes.add_pairs(block, first, mass)
    return mass


def add_tables(parts: Sequence[FloatArray]) -> FloatArray:
    """Sum of tables, at least one, in the order given; no more than one is made."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total
