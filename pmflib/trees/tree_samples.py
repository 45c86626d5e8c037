"""Samples in memory for latent classes with forests: distinct rows in blocks, worked on by several threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.blocks import Block, DenseBlock, cut_evenly
from pmflib.em.block_scores import score_average, score_difference
from pmflib.em.duplicates import merge_duplicates
from pmflib.em.members import merge_scores
from pmflib.running.processors import count_processors
from pmflib.selection.comparison import PairedDifference, estimate_gain
from pmflib.trees.tree_statistics import TreeParameters, TreePasses, TreeStatistics, fill_below

BLOCK_WORK = 5_000_000
"""Cells times rank in a block, about: some milliseconds of work, which is worth a thread."""
MAX_BLOCKS = 16
"""Limit of the number of blocks: more would only add up more statistics."""
PAIR_BYTES = 1 << 28
"""Size of the counts of pairs that are made at a time, bytes."""


class TreeSamples:
    """Encoded samples in memory: a `pmflib.trees.passed_samples.Samples`.

    Parameters
    ----------
    codes
        Integers of shape (n_rows, n_variables), valid, -1 missing.
    offsets
        int64 of shape (n_variables + 1,).
    rank
        Rank of the models to come: blocks are cut to the work there will be, whatever the number of threads.
    target
        Variable whose log-likelihood given the others models are judged by; None is that of all.
    """

    def __init__(
        self, codes: IntArray, offsets: IntArray, rank: int, target: int | None = None
    ) -> None:
        whole = merge_duplicates(DenseBlock(np.ascontiguousarray(codes)))
        work = codes.shape[1] * whole.n_rows * rank
        n_blocks = max(1, min(MAX_BLOCKS, work // BLOCK_WORK, whole.n_rows))
        self.offsets, self._target = offsets, target
        self.n_rows = len(codes)
        self.n_observed = int(np.count_nonzero(codes >= 0))
        self._blocks = cut_evenly(whole, n_blocks)
        self._pool = ThreadPoolExecutor(count_processors())

    def thin(self, most: int) -> TreeSamples:
        """Return about so many of the distinct rows, at equal distances; the samples themselves where these are few."""
        step = sum(block.n_rows for block in self._blocks) // max(most, 1)
        if step < 2:
            return self
        thinned = copy(self)
        thinned._blocks = [block.take(np.arange(0, block.n_rows, step)) for block in self._blocks]
        thinned.n_observed = sum(block.n_observed for block in thinned._blocks)
        return thinned

    def add_up(self, parameters: TreeParameters) -> TreeStatistics:
        """Sufficient statistics of all samples under a model."""
        passes = TreePasses(parameters)
        return TreeStatistics.merge(self._map(passes.add_up))

    def score(self, models: Sequence[TreeParameters]) -> float:
        """Log-likelihood under the average of models, at least one; nats per sample, 0 without samples."""
        scores = [TreePasses(each).score for each in models]
        total, n_samples = merge_scores(
            self._map(lambda block: score_average(block, self.offsets, scores, self._target))
        )
        return float(total / max(n_samples, 1))

    def compare(
        self, first: Sequence[TreeParameters], second: Sequence[TreeParameters]
    ) -> PairedDifference:
        """Mean gain of a sample by the average of the first models over that of the second, nats, and its error."""
        better, worse = ([TreePasses(each).score for each in models] for models in (first, second))

        def add(block: Block) -> FloatArray:
            return score_difference(block, self.offsets, better, worse, self._target)

        return estimate_gain(merge_scores(self._map(add)))

    def count_pairs(self, parameters: TreeParameters, first: int, n_states: int) -> FloatArray:
        """Posterior-weighted counts of all pairs, symmetric, for some states: (n_states, n_levels, n_levels)."""
        passes = TreePasses(parameters)
        n_levels = int(self.offsets[-1])
        mass = np.zeros((n_states, n_levels, n_levels))
        for block in self._blocks:
            passes.add_pairs(block, first, mass)
        fill_below(mass)
        return mass

    def count_side_by_side(self) -> int:
        """Number of states whose pairs are counted at a time."""
        return max(1, PAIR_BYTES // (8 * int(self.offsets[-1]) ** 2))

    def _map(self, function: Callable[[Block], object]) -> list:  # type: ignore[type-arg]
        if len(self._blocks) == 1:
            return [function(self._blocks[0])]
        return list(self._pool.map(function, self._blocks))
