"""Samples in memory for EM: distinct rows in a few blocks, worked on by several threads."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy

import numpy as np

from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.blocks import DenseBlock, cut_evenly
from pmflib.em.block_scores import AddScores, score_average, score_difference, score_under
from pmflib.em.duplicates import merge_duplicates
from pmflib.em.members import merge_each, merge_scores
from pmflib.em.statistics import EMStatistics, em_statistics, take_logs
from pmflib.running.processors import count_processors
from pmflib.selection.comparison import estimate_gain

BLOCK_WORK = 20_000_000
"""Observed cells times rank in a block, about: some milliseconds of work, which is worth a thread."""
MAX_BLOCKS = 16
"""Limit of the number of blocks: more would only add up more statistics."""


class SamplesInMemory:
    """Encoded samples in memory: a `pmflib.em.samples.Samples`.

    Parameters
    ----------
    codes
        Integers of shape (n_rows, n_variables), valid, -1 missing.
    offsets
        int64 of shape (n_variables + 1,).
    rank
        Rank of the models to come, summed where they are averaged: blocks are cut to the work there will be, whatever
        the number of threads.
    target
        Variable whose log-likelihood given the others models are judged by; None is that of all.
    """

    def __init__(
        self, codes: IntArray, offsets: IntArray, rank: int, target: int | None = None
    ) -> None:
        whole = merge_duplicates(DenseBlock(codes))
        n_blocks = max(1, min(MAX_BLOCKS, whole.n_observed * rank // BLOCK_WORK, whole.n_rows))
        self.n_observed = (
            int(np.count_nonzero(codes >= 0)) if whole.weights is not None else whole.n_observed
        )
        self._offsets, self._target = offsets, target
        self._blocks = cut_evenly(whole, n_blocks)
        self._pool = ThreadPoolExecutor(count_processors())

    def hide(self, variable: int) -> SamplesInMemory:
        """Return the same samples with one variable missing."""
        hidden = copy(self)
        hidden._blocks = [block.hide(variable, self._offsets) for block in self._blocks]
        hidden.n_observed = sum(block.n_observed for block in hidden._blocks)
        return hidden

    @property
    def n_side_by_side(self) -> int:
        """Independent runs of EM at a time: one, which keeps all processors busy."""
        return 1

    def evaluate(self, models: Sequence[Parameters]) -> list[EMStatistics]:
        """Sufficient statistics under each of several models of one rank, at least one."""
        logs = [take_logs(*model) for model in models]

        def add_up(number: int) -> EMStatistics:
            block, log = divmod(number, len(logs))
            return em_statistics(self._blocks[block], self._offsets, *logs[log])

        n_tasks = len(self._blocks) * len(logs)
        found = list(self._pool.map(add_up, range(n_tasks)) if n_tasks > 1 else [add_up(0)])
        return merge_each([found[i : i + len(logs)] for i in range(0, n_tasks, len(logs))])

    def start_ahead(self, models: Sequence[Parameters]) -> None:
        """None: a pass keeps all processors busy."""

    def score(
        self, models: Sequence[Parameters], meanwhile: Callable[[], None] | None = None
    ) -> float:
        """Log-likelihood under the average of models, at least one; nats per sample, 0 without samples.

        The work is done here, so that ``meanwhile`` is not called.
        """
        total, n_samples = self._add_up(score_average, models)
        return float(total / max(n_samples, 1))

    def compare(self, first: Parameters, second: Parameters) -> tuple[float, float]:
        """Mean gain of a sample by the first of two models over the second, nats, and its standard error."""
        return estimate_gain(self._add_up(score_difference, [first], [second]))

    def digest(self) -> str:
        """SHA-256 of the distinct rows and their weights, in hexadecimal."""
        total = hashlib.sha256()
        for block in self._blocks:
            codes = block.to_codes(self._offsets).astype(np.int16)
            total.update(f"{codes.shape} {block.weights is None} ".encode() + codes.tobytes())
            if block.weights is not None:
                total.update(block.weights.tobytes())
        return total.hexdigest()

    def _add_up(self, add: AddScores, *averages: Sequence[Parameters]) -> FloatArray:
        """Sums of scores under averages of models over the blocks, in their order."""
        scores = [[score_under(model, self._offsets) for model in models] for models in averages]

        def add_block(block: DenseBlock) -> FloatArray:
            return add(block, self._offsets, *scores, self._target)

        return merge_scores(list(self._pool.map(add_block, self._blocks)))
