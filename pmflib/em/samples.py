"""Samples that EM passes over, wherever they are: sums under latent classes, and scores of these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy

from pmflib.core.arrays import IntArray, Parameters
from pmflib.core.blocks import DenseBlock, split_block
from pmflib.em.block_source import MAX_BLOCKS, BlocksInMemory, BlockSource, iterate_distinct
from pmflib.em.blocks import merge_duplicates, score_under
from pmflib.model.statistics import EMStatistics, em_statistics, merge_each, take_logs
from pmflib.store.sample_blocks import BlockGroup

BLOCK_WORK = 20_000_000
"""Observed cells times rank in a block in memory, about: some milliseconds of work, which is worth a thread."""


class Samples(ABC):
    """Samples that EM passes over, or that it is evaluated on: in memory, or in a store."""

    @property
    @abstractmethod
    def source(self) -> BlockSource:
        """Blocks of the samples."""

    @abstractmethod
    def share_models(self, models: Sequence[Parameters]) -> tuple[list[Sequence[Parameters]], int]:
        """Models that a task works on one after the other, and the size of their statistics, bytes."""

    @property
    def n_observed(self) -> int:
        """Number of observed cells."""
        return self.source.n_observed

    @property
    def n_side_by_side(self) -> int:
        """Independent runs of EM over these samples that are under way at a time."""
        return self.source.n_side_by_side

    def digest(self) -> str:
        """SHA-256 that other samples do not have, in hexadecimal: states of EM are kept with it."""
        return self.source.digest()

    def evaluate(self, models: Sequence[Parameters]) -> list[EMStatistics]:
        """Sufficient statistics under each of several models of one rank, at least one."""
        shares, result_bytes = self.share_models(models)
        each = [(self.source.offsets, share) for share in shares]
        found = self.source.map_each(
            evaluate_group, merge_each, each, result_bytes=result_bytes, name="pass"
        )
        return [statistics for share in found for statistics in share]

    @abstractmethod
    def hold(self) -> None:
        """Have the samples where they are worked on, before anything else is."""

    def start_ahead(self, models: Sequence[Parameters]) -> Callable[[], list[EMStatistics]] | None:
        """Start what `evaluate` would do, and return what waits for it; None where it is done here."""
        return None

    def score(
        self, models: Sequence[Parameters], meanwhile: Callable[[], None] | None = None
    ) -> float:
        """Log-likelihood under the average of models, at least one; nats per sample, 0 without samples.

        ``meanwhile`` is called once the work is under way elsewhere; never where it is done here.
        """
        return self.source.score(score_under, models, meanwhile)

    def compare(self, first: Parameters, second: Parameters) -> tuple[float, float]:
        """Mean gain of a sample by the first of two models over the second, nats, and its standard error."""
        return self.source.compare(score_under, [first], [second])


class SamplesInMemory(Samples):
    """Encoded samples in memory: distinct rows in a few blocks, worked on by several threads.

    Parameters
    ----------
    samples
        Valid samples, with weights or without; or their codes alone, (n_rows, n_variables), -1 missing.
    offsets
        int64 of shape (n_variables + 1,).
    rank
        Rank of the models to come, summed where they are averaged: blocks are cut to the work there will be, whatever
        the number of threads.
    target
        Variable whose log-likelihood given the others models are evaluated by; None is that of all.
    """

    def __init__(
        self,
        samples: IntArray | DenseBlock,
        offsets: IntArray,
        rank: int,
        target: int | None = None,
    ) -> None:
        given = samples if isinstance(samples, DenseBlock) else DenseBlock(samples)
        whole = merge_duplicates(given)
        n_blocks = max(1, min(MAX_BLOCKS, whole.n_observed * rank // BLOCK_WORK, whole.n_rows))
        n_observed = None if whole is given else given.n_observed
        blocks = split_block(whole, n_blocks)
        self._source = BlocksInMemory(blocks, offsets, target, n_observed=n_observed)

    @property
    def source(self) -> BlocksInMemory:
        """Blocks of the samples."""
        return self._source

    def share_models(self, models: Sequence[Parameters]) -> tuple[list[Sequence[Parameters]], int]:
        """One model at a time: threads share them."""
        return [[model] for model in models], 0

    def hold(self) -> None:
        """Nothing: they are here."""

    def hide(self, variable: int) -> SamplesInMemory:
        """Return the same samples with one variable missing."""
        hidden = copy(self)
        offsets = self._source.offsets
        hidden._source = self._source.change(lambda block: block.hide(variable, offsets))
        return hidden


def evaluate_group(
    group: BlockGroup, offsets: IntArray, models: Sequence[Parameters]
) -> list[EMStatistics]:
    """Sufficient statistics of a group under each of several models; the blocks are read once."""
    logs = [take_logs(*model) for model in models]
    return merge_each(
        [[em_statistics(block, offsets, *log) for log in logs] for block in iterate_distinct(group)]
    )
