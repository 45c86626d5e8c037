"""Sources of sample blocks for EM: in memory (threads) or in a store (Dask workers or the current thread)."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import Block, DenseBlock, split_block
from pmflib.base.comparison import PairedDifference, estimate_gain
from pmflib.base.machine import count_processors
from pmflib.em.blocks import (
    AddScores,
    ScoreRows,
    merge_duplicates,
    merge_scores,
    score_average,
    score_difference,
    score_under_classes,
)
from pmflib.store.sample_blocks import BlockGroup, BlockReference, read_blocks

P = TypeVar("P")
R = TypeVar("R")

ScoreUnder: TypeAlias = Callable[[P, IntArray], ScoreRows]
"""Given a model and level offsets, returns a function that scores rows; logarithms are computed once."""

MAX_BLOCKS = 16
"""Largest number of blocks in memory; more blocks only add statistics to merge."""
BLOCK_WORK = 20_000_000
"""Approximate observed cells times rank per block in memory: a few milliseconds of work, enough for a thread."""


class BlockSource(ABC):
    """Blocks of samples, in memory or in a store, that every family of models iterates over.

    The division into blocks and the order of merging depend only on the samples and the amount of work, so results have
    the same bits for any number of threads or workers.

    Attributes
    ----------
    offsets
        int64 of shape (n_variables + 1,).
    n_observed
        Number of observed cells.
    target
        Variable whose conditional log-likelihood given the others is the evaluation criterion; None for the joint
        log-likelihood.
    """

    offsets: IntArray
    n_observed: int
    target: int | None = None

    @property
    @abstractmethod
    def n_samples(self) -> int:
        """Return the number of samples, including those with nothing observed."""

    @abstractmethod
    def map_each(
        self,
        function: Callable[..., R],
        merge: Callable[[Sequence[R]], R],
        each: Sequence[tuple[Any, ...]],
        *,
        result_bytes: int = 0,
        name: str = "",
        meanwhile: Callable[[], None] | None = None,
    ) -> list[R]:
        """Map a function over the blocks for each of several argument tuples and merge the results of each.

        Parameters
        ----------
        function
            Called as ``function(group, *arguments)`` with a group of blocks, whose distinct rows `iterate_distinct`
            yields. It must not modify its arguments.
        merge
            Merges a list of results in order, without modifying them.
        each
            Argument tuples, at least one.
        result_bytes
            Size of a result in bytes, if it is large.
        name
            Name of the tasks on a Dask cluster.
        meanwhile
            Called while workers compute; not called when the work is done in this process.
        """

    @abstractmethod
    def map_rows(
        self, function: Callable[..., R], merge: Callable[[Sequence[R]], R], *shared: Any
    ) -> R:
        """Map a function over all rows in order and merge the results.

        Parameters
        ----------
        function
            Called as ``function(group, first, *shared)`` with a group of blocks, as for
            `pmflib.store.sample_blocks.iterate_blocks`, and the position of its first row.
        merge, shared
            As for `map_blocks`.
        """

    @abstractmethod
    def digest(self) -> str:
        """Return a SHA-256 digest, in hexadecimal, that identifies the samples in checkpoints. No block is read."""

    def map_blocks(
        self,
        function: Callable[..., R],
        merge: Callable[[Sequence[R]], R],
        *shared: Any,
        result_bytes: int = 0,
        name: str = "",
    ) -> R:
        """Apply `map_each` to a single tuple of arguments."""
        return self.map_each(function, merge, [shared], result_bytes=result_bytes, name=name)[0]

    def start(
        self,
        function: Callable[..., R],
        merge: Callable[[Sequence[R]], R],
        *shared: Any,
        result_bytes: int = 0,
        name: str = "",
    ) -> Callable[[], R]:
        """Apply `start_each` to a single tuple of arguments."""
        wait = self.start_each(function, merge, [shared], result_bytes=result_bytes, name=name)
        return lambda: wait()[0]

    def start_each(
        self,
        function: Callable[..., R],
        merge: Callable[[Sequence[R]], R],
        each: Sequence[tuple[Any, ...]],
        *,
        result_bytes: int = 0,
        name: str = "",
    ) -> Callable[[], list[R]]:
        """Start `map_each` on workers, if any, and return a function that waits for the results or computes them."""
        options: dict[str, Any] = {"result_bytes": result_bytes, "name": name}
        return partial(self.map_each, function, merge, each, **options)

    def count_per_task(self, n_models: int) -> int:
        """Return the number of models that one task evaluates per block; it does not affect the results."""
        return 1

    @abstractmethod
    def assign(self) -> None:
        """Assign the blocks to workers; does nothing without workers."""

    def map_in_turn(
        self,
        function: Callable[..., R],
        merge: Callable[[Sequence[R]], R],
        *shared: Any,
        result_bytes: int = 0,
        name: str = "",
    ) -> R:
        """Apply `map_blocks` with large results, accumulated one block after another for blocks in memory."""
        return self.map_blocks(function, merge, *shared, result_bytes=result_bytes, name=name)

    def score(
        self,
        models: Sequence[Any],
        score_under: ScoreUnder[Any] = score_under_classes,
        *,
        meanwhile: Callable[[], None] | None = None,
    ) -> float:
        """Compute the log-likelihood under the average of models, nats per sample; 0 without samples.

        Parameters
        ----------
        models
            Parameters of each model, at least one.
        score_under
            Scoring function; by default that of latent classes.
        meanwhile
            As for `map_each`.
        """
        total, n_samples = self._add_scores(score_average, score_under, [models], meanwhile)
        return float(total / max(n_samples, 1))

    def compare(
        self,
        first: Sequence[Any],
        second: Sequence[Any],
        score_under: ScoreUnder[Any] = score_under_classes,
    ) -> PairedDifference:
        """Compute the mean gain per sample of the first average over the second, nats, and its standard error."""
        return estimate_gain(self._add_scores(score_difference, score_under, [first, second]))

    def _add_scores(
        self,
        add: AddScores,
        score_under: ScoreUnder[P],
        averages: Sequence[Sequence[P]],
        meanwhile: Callable[[], None] | None = None,
    ) -> FloatArray:
        """Sum scores under averages of models over all samples."""
        shared = self.offsets, add, score_under, averages, self.target
        return self.map_each(
            score_block_group, merge_scores, [shared], name="score", meanwhile=meanwhile
        )[0]


class BlocksInMemory(BlockSource):
    """A few blocks of distinct rows in memory, processed by threads.

    Parameters
    ----------
    blocks
        Blocks of distinct rows.
    offsets, target
        As for `BlockSource`.
    rows
        All rows in their original order, if needed; by default the rows of the blocks.
    n_observed
        Number of observed cells in all samples; by default counted in the blocks.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        offsets: IntArray,
        target: int | None = None,
        *,
        rows: Block | None = None,
        n_observed: int | None = None,
    ) -> None:
        self.blocks, self.offsets, self.target = blocks, offsets, target
        known = sum(block.n_observed for block in blocks) if n_observed is None else n_observed
        self.n_observed = known
        self._rows: Sequence[Block] = blocks if rows is None else [rows]
        self._pool = ThreadPoolExecutor(count_processors())

    @classmethod
    def cut(
        cls,
        samples: IntArray | DenseBlock,
        offsets: IntArray,
        rank: int,
        target: int | None = None,
    ) -> BlocksInMemory:
        """Group samples into blocks of distinct rows for latent classes.

        Parameters
        ----------
        samples
            Valid samples, weighted or not; or codes of shape (n_rows, n_variables), -1 missing.
        offsets, target
            As for `BlockSource`.
        rank
            Rank of the models to be fitted, summed over the members of an average. It determines the number of blocks,
            which does not depend on the number of threads.
        """
        given = samples if isinstance(samples, DenseBlock) else DenseBlock(samples)
        whole = merge_duplicates(given)
        n_blocks = max(1, min(MAX_BLOCKS, whole.n_observed * rank // BLOCK_WORK, whole.n_rows))
        n_observed = None if whole is given else given.n_observed
        return cls(split_block(whole, n_blocks), offsets, target, n_observed=n_observed)

    @property
    def n_samples(self) -> int:
        """Return the number of samples; equal rows may be stored once."""
        return round(sum(block.n_samples for block in self.blocks))

    def change(self, function: Callable[[Block], Block]) -> BlocksInMemory:
        """Return samples with transformed blocks, for example with fewer rows or a hidden variable."""
        changed = copy(self)
        changed.blocks = changed._rows = [*map(function, self.blocks)]
        changed.n_observed = sum(block.n_observed for block in changed.blocks)
        return changed

    def assign(self) -> None:
        """Do nothing: there are no workers."""

    def hide(self, variable: int) -> BlocksInMemory:
        """Return the same samples with one variable missing."""
        return self.change(lambda block: block.hide(variable, self.offsets))

    def thin(self, most: int) -> BlocksInMemory:
        """Return about ``most`` of the distinct rows, evenly spaced, or the samples themselves if there are no more."""
        step = sum(block.n_rows for block in self.blocks) // max(most, 1)
        if step < 2:
            return self
        return self.change(lambda block: block.take(np.arange(0, block.n_rows, step)))

    def map_each(
        self,
        function: Callable[..., R],
        merge: Callable[[Sequence[R]], R],
        each: Sequence[tuple[Any, ...]],
        *,
        result_bytes: int = 0,
        name: str = "",
        meanwhile: Callable[[], None] | None = None,
    ) -> list[R]:
        """Map in threads, with one task per block and argument tuple."""

        def work(number: int) -> R:
            index, own = divmod(number, len(each))
            return function([self.blocks[index]], *each[own])

        n_tasks = len(self.blocks) * len(each)
        found = list(self._pool.map(work, range(n_tasks)) if n_tasks > 1 else [work(0)])
        return [merge(found[own :: len(each)]) for own in range(len(each))]

    def map_in_turn(
        self,
        function: Callable[..., R],
        merge: Callable[[Sequence[R]], R],
        *shared: Any,
        result_bytes: int = 0,
        name: str = "",
    ) -> R:
        """Process all blocks in a single call of the function."""
        return function(self.blocks, *shared)

    def map_rows(
        self, function: Callable[..., R], merge: Callable[[Sequence[R]], R], *shared: Any
    ) -> R:
        """Map in threads, with one task per block of rows."""
        ends = np.cumsum([0, *(block.n_rows for block in self._rows)])
        items = list(zip(self._rows, ends.tolist(), strict=False))
        return merge(
            list(self._pool.map(lambda item: function([item[0]], item[1], *shared), items))
        )

    def digest(self) -> str:
        """Digest the distinct rows and their weights."""
        total = hashlib.sha256()
        for block in self.blocks:
            codes = (
                (block.codes,) if isinstance(block, DenseBlock) else (block.indptr, block.indices)
            )
            for array in codes:
                total.update(f"{array.shape} ".encode() + array.astype(np.int64).tobytes())
            if block.weights is not None:
                total.update(b"weights " + block.weights.tobytes())
        return total.hexdigest()


def iterate_distinct(group: BlockGroup) -> Iterator[Block]:
    """Yield the blocks of a group; equal rows of blocks that are read are merged where that pays.

    Results must not depend on whether blocks are kept or read again, so equal rows are merged in both cases; loaded
    blocks are already merged.
    """
    if stored := [item for item in group if isinstance(item, BlockReference)]:
        yield from map(merge_duplicates, read_blocks(stored))
    yield from (item for item in group if not isinstance(item, BlockReference))


def score_block_group(
    group: BlockGroup,
    offsets: IntArray,
    add: AddScores,
    score_under: ScoreUnder[P],
    averages: Sequence[Sequence[P]],
    target: int | None,
) -> FloatArray:
    """Sum the scores of a group under averages of models; logarithms are computed once."""
    scores = [[score_under(model, offsets) for model in models] for models in averages]
    return merge_scores([add(block, offsets, *scores, target) for block in iterate_distinct(group)])
