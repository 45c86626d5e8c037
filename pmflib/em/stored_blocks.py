"""Stored blocks of samples as a source for EM: by Dask workers, or in the current thread."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.base.blocks import Block, DenseBlock
from pmflib.cluster.clients import Client, count_threads
from pmflib.cluster.item_maps import LoadedItems, keep_loaded
from pmflib.cluster.maps import PendingResult, run_blocks, start_blocks
from pmflib.em.block_source import BlockSource, R, iterate_distinct
from pmflib.em.memory import choose_tasks, share_models
from pmflib.store.file_digests import name_content
from pmflib.store.sample_blocks import BlockReference, group_blocks, weigh_blocks

CHANGED_SHARE = 4
"""Stored blocks are reassigned when the number of threads changes by more than a fraction 1 / ``CHANGED_SHARE``;
reassigned blocks are read again.
"""


class StoredBlocks(BlockSource):
    """Blocks in a store, read in groups by Dask workers or by this thread.

    Parameters
    ----------
    blocks
        Blocks in the order of the dataset.
    offsets, target
        As for `BlockSource`.
    client
        Dask client whose workers can read the store; None to work in this thread.
    is_kept
        Whether workers keep the blocks they have read between passes.
    load
        Reads a group that is to be kept.
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
        # concurrent runs share one assignment of the blocks
        self._holding = Lock()

    @property
    def n_samples(self) -> int:
        """Return the number of samples in the blocks, weighted rows counting by their weights."""
        return round(sum(block.n_samples for block in self.blocks))

    @cached_property
    def groups(self) -> Sequence[Sequence[BlockReference]]:
        """Return groups of blocks, each large enough for a task."""
        return group_blocks(self.blocks)

    @cached_property
    def costs(self) -> list[int]:
        """Return the cost of each group, for planning a pass."""
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
        """Submit the tasks to the workers; without a client, compute when the result is requested."""
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
        """Return as many models per task as keep all threads busy: a task reads each block once."""
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
        """Map over the groups, kept in memory if they fit."""
        options: dict[str, Any] = {"result_bytes": result_bytes, "name": name}
        pending = self._submit(function, merge, each, **options)
        if meanwhile is not None and self.client is not None:
            meanwhile()
        return [one.wait() for one in pending]

    def map_rows(
        self, function: Callable[..., R], merge: Callable[[Sequence[R]], R], *shared: Any
    ) -> R:
        """Map over the groups, which are read again."""
        groups: Sequence[Any] = self.groups or [[]]
        ends = np.cumsum([0, *(sum(block.n_rows for block in group) for group in groups)])
        items = list(zip(groups, ends.tolist(), strict=False))
        shared = (function, *shared)
        found: R = run_blocks(
            self.client, _work_on_rows, items, merge, *shared, costs=self.costs, name="rows"
        )
        return found

    def digest(self) -> str:
        """Digest the block positions and the row positions within each block."""
        total = hashlib.sha256()
        for block in self.blocks:
            name = name_content(block.folder)
            total.update(f"{name} {block.start} {block.stop} {block.fold} ".encode())
            if block.superseded is not None:
                total.update(block.superseded.astype(np.int64).tobytes())
        return total.hexdigest()

    def hold(self) -> LoadedItems:
        """Return the assignment of the groups; one thread of the client at a time."""
        with self._holding:
            return self._assign_groups()

    def _assign_groups(self) -> LoadedItems:
        """Return the groups assigned to the current threads: loaded blocks or references."""
        n_tasks = choose_tasks(self.costs, count_threads(self.client))
        if self._kept:
            kept = self._kept[0]
            n_runs = min(n_tasks, len(kept))
            if abs(n_runs - kept.plan.n_runs) * CHANGED_SHARE <= kept.plan.n_runs:
                return kept
            # release old groups before loading new ones
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


def load_group(group: Sequence[BlockReference]) -> list[Block]:
    """Read all blocks of a group and merge equal rows where that pays."""
    return list(iterate_distinct(group))


def _work_on_rows(
    item: tuple[Sequence[BlockReference], int], function: Callable[..., R], *shared: Any
) -> R:
    """Call a function with a group of blocks, the position of its first row, and the shared arguments."""
    return function(*item, *shared)
