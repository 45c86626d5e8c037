"""How many blocks, groups, partitions and tasks there will be: from the functions that decide it in a run.

Nothing is decided here: blocks are split as `SampleWriter` splits them and grouped by `group_blocks`; files are split
by `choose_ranges`, assigned to buckets by `choose_buckets`, and these assembled in groups by `group_buckets`; tasks are
planned by `plan_tasks`, `plan_pass`, `choose_tasks` and `plan_fold_runs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pmflib.cluster.item_maps import is_sent_along
from pmflib.cluster.task_plans import TaskPlan
from pmflib.ingest.chunks import FILE_CHUNK_ROWS, choose_ranges
from pmflib.ingest.dataset.identifiers import choose_buckets, group_buckets
from pmflib.ingest.splitting import LEAST_PARQUET
from pmflib.store.sample_blocks import BlockReference, choose_block_rows, group_blocks, weigh_blocks
from pmflib_tasks.operations.planning.sizes import LogSize


@dataclass(frozen=True)
class MapTasks:
    """Tasks of a map over items whose results are merged.

    Parameters
    ----------
    leaves
        Tasks that work on items.
    merges
        Tasks that merge.
    shared
        Tasks that hold a shared value which is too large to be sent along with each task.
    depth
        Levels of merges.
    moved
        Results that merging tasks are sent.
    balance
        Work of the most expensive leaf, as a multiple of the mean.
    results
        Results that are merged apart from each other.
    """

    leaves: int
    merges: int = 0
    shared: int = 0
    depth: int = 0
    moved: int = 0
    balance: float = 1.0
    results: int = 1

    @property
    def total(self) -> int:
        """All tasks."""
        return self.leaves + self.merges + self.shared

    @classmethod
    def of_plan(cls, plan: TaskPlan, *shared_sizes: int | None, balance: float = 0.0) -> MapTasks:
        """Count the tasks of a plan, with those of shared values.

        Parameters
        ----------
        plan
            As `start_blocks` makes it.
        shared_sizes
            Bytes of each shared value, as `measure_shared` has it: None is a task of its own.
        balance
            That of the leaves, where the plan does not know their costs; 0 takes the plan's.
        """
        return cls(
            plan.n_runs,
            plan.n_merges,
            _count_shared(plan.n_runs, shared_sizes),
            len(plan.merge_levels),
            plan.n_values_sent,
            balance or plan.balance,
        )

    @classmethod
    def of_plans(
        cls,
        plans: Sequence[TaskPlan],
        merges: Sequence[TaskPlan],
        n_ahead: int,
        *shared_sizes: int | None,
    ) -> MapTasks:
        """Count the tasks of several maps that `start_maps` starts: some together, each of the others for itself.

        Parameters
        ----------
        splits
            Plan of each map by which its items are split into tasks.
        merges
            Plan of each map by which the results of these are merged.
        n_ahead
            Number of maps that are started together.
        shared_sizes
            As for `of_plan`.
        """
        if not plans:
            return cls(1)
        leaves = [plan.n_runs for plan in plans]
        calls = [sum(leaves[:n_ahead]), *leaves[n_ahead:]]
        costs = np.concatenate([np.add.reduceat(each.costs, each.bounds[:-1]) for each in plans])
        return cls(
            sum(leaves),
            sum(plan.n_merges for plan in merges),
            sum(_count_shared(n_leaves, shared_sizes) for n_leaves in calls),
            max(len(plan.merge_levels) for plan in merges),
            sum(plan.n_values_sent for plan in merges),
            float(costs.max() / max(costs.mean(), 1e-300)),
            len(plans),
        )

    @classmethod
    def of_items(cls, n_items: int, *shared_sizes: int | None) -> MapTasks:
        """Count the tasks of `map_items`: one for each item, and those of shared values, as for `of_plan`."""
        return cls(n_items, shared=_count_shared(n_items, shared_sizes))


def _count_shared(n_tasks: int, sizes: Sequence[int | None]) -> int:
    """Tasks that hold shared values for so many others: one for each value that is not sent along."""
    return sum(not is_sent_along(size, n_tasks) for size in sizes)


@dataclass(frozen=True)
class IngestShape:
    """Tasks and artefacts of an ingest of new files.

    Parameters
    ----------
    files
        Raw files: each is hashed by a task, and is an entry of the manifest.
    looks
        Tasks that look for positions to split large files at.
    split_files
        Files that are split by bytes: where is an artefact of its own.
    chunks
        Tasks that read files or chunks of them, and artefacts that they write.
    partitions
        Partitions of the dataset; where samples have identifiers, as many tasks sort rows into them.
    """

    files: int
    looks: int
    split_files: int
    chunks: int
    partitions: int

    @property
    def openings(self) -> int:
        """Spills that tasks open which sort, in all."""
        return self.chunks * self.partitions


def count_ingest(log: LogSize, n_folds: int, n_buckets: int = 0) -> IngestShape:
    """Count the tasks and artefacts of an ingest; files count as equally large.

    Parameters
    ----------
    log
        Size of the log.
    n_folds, n_buckets
        As in ``[store]``.
    """
    size, looks, split_files, n_chunks = log.raw_bytes // log.files, 0, 0, log.files
    if log.cut == "bytes" and (n_ranges := len(choose_ranges(size))) > 1:
        looks, split_files, n_chunks = n_ranges * log.files, log.files, n_ranges * log.files
    elif log.cut == "row groups" and size >= LEAST_PARQUET:
        looks = log.files
        n_chunks = log.files * max(1, -(-log.rows // log.files // FILE_CHUNK_ROWS))
    n_partitions = n_chunks
    if log.identified:
        n_buckets = n_buckets or choose_buckets(log.csv_bytes, n_folds)
        n_partitions = len(group_buckets(log.csv_bytes, n_buckets))
    return IngestShape(log.files, looks, split_files, n_chunks, n_partitions)


@dataclass(frozen=True)
class FoldPart:
    """Samples of some folds, as far as the cost of working on them depends on them.

    Parameters
    ----------
    n_rows, n_observed, n_bytes, n_blocks
        Samples, their observed cells, bytes of their blocks in memory, and blocks.
    costs, block_costs
        Cost of each group of blocks, and of each block.
    """

    n_rows: int
    n_observed: int
    n_bytes: int
    n_blocks: int
    costs: tuple[int, ...]
    block_costs: tuple[int, ...]


@lru_cache(maxsize=256)
def plan_folds(
    log: LogSize, n_folds: int, n_buckets: int, first: int, stop: int, coarseness: int = 1
) -> FoldPart:
    """Group the blocks of the folds from one up to another.

    Parameters
    ----------
    log, n_folds, n_buckets
        As for `list_planned_blocks`.
    first, stop
        Folds.
    coarseness
        As for `group_blocks`.
    """
    blocks = list_planned_blocks(log, n_folds, n_buckets)
    mine = [block for block in blocks if first <= block.fold < stop]
    groups = group_blocks(mine, coarseness)
    return FoldPart(
        sum(block.n_rows for block in mine),
        sum(block.n_observed for block in mine),
        sum(block.nbytes for block in mine),
        len(mine),
        tuple(weigh_blocks(group) for group in groups),
        tuple(weigh_blocks([block]) for block in mine),
    )


@lru_cache(maxsize=2)
def list_planned_blocks(
    log: LogSize, n_folds: int, n_buckets: int = 0
) -> tuple[BlockReference, ...]:
    """List the blocks of a dataset, in its order, as they would be split if samples were assigned evenly.

    Paths are not real: blocks of the same partition share a path that says which.

    Parameters
    ----------
    log
        Size of the log.
    n_folds, n_buckets
        As in ``[store]``.
    """
    n_partitions = count_ingest(log, n_folds, n_buckets).partitions
    buckets: Sequence[tuple[int, int]] = ()
    if log.identified:
        n_buckets = n_buckets or choose_buckets(log.csv_bytes, n_folds)
        buckets = group_buckets(log.csv_bytes, n_buckets)
    block_rows = choose_block_rows(log.variables)
    observed = log.variables * log.observed
    blocks: list[BlockReference] = []
    for partition in range(n_partitions):
        by_fold = dict.fromkeys(range(n_folds), 0)
        if log.identified:
            for bucket in range(*buckets[partition]):
                by_fold[bucket % n_folds] += _share(log.samples, n_buckets, bucket)
        else:
            n_rows = _share(log.samples, n_partitions, partition)
            by_fold = {fold: _share(n_rows, n_folds, fold) for fold in by_fold}
        first, path = 0, f"partition-{partition}"
        for fold, n_mine in by_fold.items():
            for start in range(0, n_mine, block_rows):
                size = min(block_rows, n_mine - start)
                n_bytes, n_observed = round(size * log.row_bytes), round(size * observed)
                blocks.append(BlockReference(path, first, first + size, fold, n_observed, n_bytes))
                first += size
    return tuple(blocks)


def _share(total: int, parts: int, index: int) -> int:
    """Size of one of as equal parts as there are."""
    return (index + 1) * total // parts - index * total // parts
