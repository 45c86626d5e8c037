"""Blocks of samples that passes map over: in memory, by threads, or in a store, with a Dask client or without."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import cached_property, partial
from threading import Lock
from typing import Any, TypeAlias, TypeVar

import numpy as np

from pmflib.cluster.clients import Client, count_threads
from pmflib.cluster.item_maps import LoadedItems, keep_loaded
from pmflib.cluster.maps import PendingResult, run_blocks, start_blocks
from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.blocks import Block, DenseBlock, split_block
from pmflib.core.comparison import PairedDifference, estimate_gain
from pmflib.core.machine import count_processors
from pmflib.em.blocks import (
    AddScores,
    ScoreRows,
    merge_duplicates,
    merge_scores,
    score_average,
    score_difference,
    score_under_classes,
)
from pmflib.em.memory import choose_tasks, share_models
from pmflib.store.caches import find_local_path
from pmflib.store.file_digests import name_content
from pmflib.store.sample_blocks import (
    BlockGroup,
    BlockReference,
    group_blocks,
    read_blocks,
    weigh_blocks,
)

P = TypeVar("P")
R = TypeVar("R")

ScoreUnder: TypeAlias = Callable[[P, IntArray], ScoreRows]
"""Scores of rows under a model, whose logarithms are taken once; the offsets of the levels are given."""

MAX_BLOCKS = 16
"""Limit of the number of blocks in memory: more would only add up more statistics."""
BLOCK_WORK = 20_000_000
"""Observed cells times rank in a block in memory, about: some milliseconds of work, which is worth a thread."""
CHANGED_SHARE = 4
"""Stored blocks are assigned anew when the number of threads has changed by more than itself divided by this: those
that workers keep must then be read again."""


class BlockSource(ABC):
    """Blocks of samples, wherever they are: what all families of models pass over.

    How samples are cut into blocks, and in which order or tree results are merged, depends on the samples and the work
    alone: the same bits with any number of threads or workers, and without any.

    Attributes
    ----------
    offsets
        int64 of shape (n_variables + 1,).
    n_observed
        Number of observed cells.
    target
        Variable whose log-likelihood given the others models are evaluated by; None is that of all.
    """

    offsets: IntArray
    n_observed: int
    target: int | None = None

    @property
    @abstractmethod
    def n_samples(self) -> int:
        """Number of samples, those with nothing observed among them."""

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
        """Map a function over the blocks under each of several arguments, at least one, and merge the results of each.

        Parameters
        ----------
        function
            Called as ``function(group, *arguments)`` with some blocks, of which `iterate_distinct` gives the distinct
            rows; must change neither.
        merge
            Joins a list of results in order; must not change them.
        each
            Arguments.
        result_bytes
            Size of a result, where it is large.
        name
            What the tasks of a client are called.
        meanwhile
            Called once the work is under way elsewhere; never where it is done here.
        """

    @abstractmethod
    def map_rows(
        self, function: Callable[..., R], merge: Callable[[Sequence[R]], R], *shared: Any
    ) -> R:
        """Map a function over all rows in their order, and merge the results.

        Parameters
        ----------
        function
            Called as ``function(group, first, *shared)`` with some blocks, as for
            `pmflib.store.sample_blocks.iterate_blocks`, and the position of the first of their rows.
        merge, shared
            As for `map_blocks`.
        """

    @abstractmethod
    def digest(self) -> str:
        """SHA-256, in hexadecimal, that other samples do not have: states of EM are kept with it. No block is read."""

    def map_blocks(
        self,
        function: Callable[..., R],
        merge: Callable[[Sequence[R]], R],
        *shared: Any,
        result_bytes: int = 0,
        name: str = "",
    ) -> R:
        """Do `map_each` for one tuple of arguments."""
        return self.map_each(function, merge, [shared], result_bytes=result_bytes, name=name)[0]

    def start(
        self,
        function: Callable[..., R],
        merge: Callable[[Sequence[R]], R],
        *shared: Any,
        result_bytes: int = 0,
        name: str = "",
    ) -> Callable[[], R]:
        """Do `start_each` for one tuple of arguments."""
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
        """Start `map_each` where workers do it, and return a function that does it or waits for it."""
        options: dict[str, Any] = {"result_bytes": result_bytes, "name": name}
        return partial(self.map_each, function, merge, each, **options)

    def count_per_task(self, n_models: int) -> int:
        """Number of models that a task is to work on, one after the other, for each block; results are equal."""
        return 1

    @abstractmethod
    def assign(self) -> None:
        """Assign the blocks to the workers that read them; nothing without workers."""

    def map_in_turn(
        self,
        function: Callable[..., R],
        merge: Callable[[Sequence[R]], R],
        *shared: Any,
        result_bytes: int = 0,
        name: str = "",
    ) -> R:
        """Do `map_blocks` with results so large that those in memory are all added to one, a block after the other."""
        return self.map_blocks(function, merge, *shared, result_bytes=result_bytes, name=name)

    def score(
        self,
        models: Sequence[Any],
        score_under: ScoreUnder[Any] = score_under_classes,
        *,
        meanwhile: Callable[[], None] | None = None,
    ) -> float:
        """Log-likelihood under the average of models, nats per sample; 0 without samples.

        Parameters
        ----------
        models
            Parameters of at least one model.
        score_under
            Scores of rows under one of them; by default that of latent classes.
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
        """Mean gain of a sample by the average of the first models over that of the second, nats, and its error."""
        return estimate_gain(self._add_scores(score_difference, score_under, [first, second]))

    def _add_scores(
        self,
        add: AddScores,
        score_under: ScoreUnder[P],
        averages: Sequence[Sequence[P]],
        meanwhile: Callable[[], None] | None = None,
    ) -> FloatArray:
        """Sums of scores under averages of models over all samples."""
        shared = self.offsets, add, score_under, averages, self.target
        return self.map_each(
            score_block_group, merge_scores, [shared], name="score", meanwhile=meanwhile
        )[0]


class BlocksInMemory(BlockSource):
    """A few blocks of distinct rows in memory, worked on by threads.

    Parameters
    ----------
    blocks
        Distinct rows.
    offsets, target
        As for `BlockSource`.
    rows
        All rows in their order, where they are needed; None is those of the blocks.
    n_observed
        Observed cells of all samples; None is those of the blocks.
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
        """Cut samples into blocks of distinct rows for latent classes.

        Parameters
        ----------
        samples
            Valid samples, with weights or without; or their codes alone, (n_rows, n_variables), -1 missing.
        offsets, target
            As for `BlockSource`.
        rank
            Rank of the models to come, summed where they are averaged: the number of blocks follows from the work,
            whatever the number of threads.
        """
        given = samples if isinstance(samples, DenseBlock) else DenseBlock(samples)
        whole = merge_duplicates(given)
        n_blocks = max(1, min(MAX_BLOCKS, whole.n_observed * rank // BLOCK_WORK, whole.n_rows))
        n_observed = None if whole is given else given.n_observed
        return cls(split_block(whole, n_blocks), offsets, target, n_observed=n_observed)

    @property
    def n_samples(self) -> int:
        """Number of samples: rows that are equal may be one."""
        return round(sum(block.n_samples for block in self.blocks))

    def change(self, function: Callable[[Block], Block]) -> BlocksInMemory:
        """Return samples of changed blocks: fewer rows, or a variable hidden."""
        changed = copy(self)
        changed.blocks = changed._rows = [*map(function, self.blocks)]
        changed.n_observed = sum(block.n_observed for block in changed.blocks)
        return changed

    def assign(self) -> None:
        """Nothing: there are no workers."""

    def hide(self, variable: int) -> BlocksInMemory:
        """Return the same samples with one variable missing."""
        return self.change(lambda block: block.hide(variable, self.offsets))

    def thin(self, most: int) -> BlocksInMemory:
        """Return about so many of the distinct rows, at equal distances; the samples themselves where these are few."""
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
        """Do the work here, in a task for each block and each of the arguments."""

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
        """Do the work on all blocks in one call of the function."""
        return function(self.blocks, *shared)

    def map_rows(
        self, function: Callable[..., R], merge: Callable[[Sequence[R]], R], *shared: Any
    ) -> R:
        """Do the work here, in a task for each block of rows."""
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


class StoredBlocks(BlockSource):
    """Blocks in a store, read in groups, which Dask workers map over, or this thread.

    Parameters
    ----------
    blocks
        In the order of the dataset.
    offsets, target
        As for `BlockSource`.
    client
        Dask client whose workers see the store; None to work in this thread.
    is_kept
        Whether workers keep what they have read from one pass to the next.
    load
        Reads a group that is kept.
    """

    def __init__(
        self,
        blocks: Sequence[BlockReference],
        offsets: IntArray,
        client: Client = None,
        target: int | None = None,
        *,
        is_kept: bool = False,
        load: Callable[[Sequence[BlockReference]], Any] | None = None,
    ) -> None:
        self.blocks, self.offsets, self.client, self.target = blocks, offsets, client, target
        self.n_observed = sum(block.n_observed for block in blocks)
        self._is_kept, self._load = is_kept, load_group if load is None else load
        self._kept: list[LoadedItems] = []
        # runs side by side take the same blocks
        self._holding = Lock()

    @property
    def n_samples(self) -> int:
        """Number of samples in the blocks; rows with weights count for as many as these say."""
        return round(sum(block.n_samples for block in self.blocks))

    @cached_property
    def groups(self) -> Sequence[Sequence[BlockReference]]:
        """Groups of blocks, each worth a task; none for no blocks."""
        return group_blocks(self.blocks)

    @cached_property
    def costs(self) -> list[int]:
        """Cost of each group, for the plan of a pass; 0 where there is none."""
        return [*map(weigh_blocks, self.groups)] or [0]

    def start_each(
        self,
        function: Callable[..., R],
        merge: Callable[[Sequence[R]], R],
        each: Sequence[tuple[Any, ...]],
        *,
        result_bytes: int = 0,
        name: str = "",
    ) -> Callable[[], list[R]]:
        """Submit the tasks to the workers; without a client the work is done when the result is requested."""
        options: dict[str, Any] = {"result_bytes": result_bytes, "name": name}
        if self.client is None:
            return super().start_each(function, merge, each, **options)
        pending = self._submit(function, merge, each, **options)
        return lambda: [one.wait() for one in pending]

    def _submit(
        self,
        function: Callable[..., R],
        merge: Callable[[Sequence[R]], R],
        each: Sequence[tuple[Any, ...]],
        *,
        result_bytes: int = 0,
        name: str = "",
    ) -> list[PendingResult[R]]:
        options: dict[str, Any] = {"result_bytes": result_bytes, "name": name}
        return [
            start_blocks(self.client, function, self.hold(), merge, *shared, **options)
            for shared in each
        ]

    def count_per_task(self, n_models: int) -> int:
        """As many models as leave no more tasks than keep all threads busy: a task reads a block once."""
        return share_models(len(self.groups), count_threads(self.client), n_models)

    def assign(self) -> None:
        """Assign the groups to the workers, which read those that they keep."""
        if self.client is not None:
            self.hold()

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
        """Map over the groups, which are kept where they fit."""
        options: dict[str, Any] = {"result_bytes": result_bytes, "name": name}
        pending = self._submit(function, merge, each, **options)
        if meanwhile is not None and self.client is not None:
            meanwhile()
        return [one.wait() for one in pending]

    def map_rows(
        self, function: Callable[..., R], merge: Callable[[Sequence[R]], R], *shared: Any
    ) -> R:
        """Map over the groups, which are read once more."""
        groups: Sequence[Any] = self.groups or [[]]
        ends = np.cumsum([0, *(sum(block.n_rows for block in group) for group in groups)])
        items = list(zip(groups, ends.tolist(), strict=False))
        shared = (function, *shared)
        found: R = run_blocks(
            self.client, _work_on_rows, items, merge, *shared, costs=self.costs, name="rows"
        )
        return found

    def digest(self) -> str:
        """Digest the positions of the blocks and of the rows in them."""
        total = hashlib.sha256()
        for block in self.blocks:
            name = name_content(find_local_path(block.path))
            total.update(f"{name} {block.start} {block.stop} {block.fold} ".encode())
            if block.superseded is not None:
                total.update(block.superseded.astype(np.int64).tobytes())
        return total.hexdigest()

    def hold(self) -> LoadedItems:
        """What `_assign_groups` returns, for one thread of the client at a time."""
        with self._holding:
            return self._assign_groups()

    def _assign_groups(self) -> LoadedItems:
        """Groups where they are worked on, assigned to the threads that there are: what was read, or references."""
        n_tasks = choose_tasks(self.costs, count_threads(self.client))
        if self._kept:
            kept = self._kept[0]
            n_runs = min(n_tasks, len(kept))
            if abs(n_runs - kept.plan.n_runs) * CHANGED_SHARE <= kept.plan.n_runs:
                return kept
            # they go before others come
            self._kept.clear()
            del kept
        load: Callable[[Any], Any] = list
        groups: Sequence[Any] = self.groups
        if not groups:
            nothing = np.empty((0, self.offsets.size - 1), np.int8)
            groups = [[DenseBlock(nothing)]]
        elif self._is_kept:
            load = self._load
        name = "list" if load is list else "load"
        self._kept.append(keep_loaded(self.client, load, groups, self.costs, name, n_tasks))
        return self._kept[0]


def _work_on_rows(
    item: tuple[Sequence[BlockReference], int], function: Callable[..., R], *shared: Any
) -> R:
    """Call a function with a group of blocks, the position of the first row, and what is shared."""
    return function(*item, *shared)


def iterate_distinct(group: BlockGroup) -> Iterator[Block]:
    """Blocks of a group, one at a time; those that are read have their equal rows merged where that pays.

    Whether blocks are kept in memory or read again for every pass must not change the result: they are merged either
    way, and loaded blocks are taken as they are.
    """
    if stored := [item for item in group if isinstance(item, BlockReference)]:
        yield from map(merge_duplicates, read_blocks(stored))
    yield from (item for item in group if not isinstance(item, BlockReference))


def load_group(group: Sequence[BlockReference]) -> list[Block]:
    """Read all blocks of a group; equal rows are merged where that pays."""
    return list(iterate_distinct(group))


def score_block_group(
    group: BlockGroup,
    offsets: IntArray,
    add: AddScores,
    score_under: ScoreUnder[P],
    averages: Sequence[Sequence[P]],
    target: int | None,
) -> FloatArray:
    """Sums of the scores of a group under averages of models, whose logarithms are taken once."""
    scores = [[score_under(model, offsets) for model in models] for models in averages]
    return merge_scores([add(block, offsets, *scores, target) for block in iterate_distinct(group)])
