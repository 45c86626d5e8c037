"""Tables under conditions among stored samples, on workers or in threads, or among those of some blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from pmflib.cluster.clients import Client, count_threads, find_memory
from pmflib.cluster.maps import run_blocks
from pmflib.cluster.memory import ClusterMemory
from pmflib.cluster.task_plans import plan_tasks
from pmflib.core.arrays import IntArray
from pmflib.core.errors import ConfigError
from pmflib.core.hashing import mix_hashes
from pmflib.core.machine import count_processors
from pmflib.counting.conditional_tables import count_cells
from pmflib.counting.stored_pairs import merge_tables
from pmflib.counting.table_requests import TablePlan, TableRequest
from pmflib.counting.weighted_tables import (
    SQUARES_BITS,
    WeightedTables,
    add_weights,
    square_weights,
)
from pmflib.schema import Schema
from pmflib.store.sample_blocks import (
    BlockReference,
    add_sums,
    iterate_blocks,
    read_blocks,
    restore_units,
)


@dataclass(frozen=True, eq=False)
class StoredTableCounts:
    """Tables counted over stored blocks, and over how many of them.

    Parameters
    ----------
    tables
        int64 tables in the order of the requests, of shapes (cardinalities of the targets).
    n_rows
        Samples of the blocks that were counted.
    n_rows_of_all
        Samples of all blocks: more than ``n_rows`` where the budget was too small for them.
    n_blocks
        Blocks that were counted.
    seconds
        What the plan says that counting them takes one core, seconds.
    weighted
        What the weights of the samples counted add up to, where they have any: tables are then sums of weights, in its
        unit.
    """

    tables: list[IntArray]
    n_rows: int
    n_rows_of_all: int
    n_blocks: int
    seconds: float
    weighted: WeightedTables | None = None

    def to_samples(self) -> tuple[list[IntArray], int]:
        """Tables in samples, and the number of all: those of `WeightedTables` where samples have weights."""
        if self.weighted is None:
            return self.tables, self.n_rows
        return self.weighted.to_samples(self.tables, self.n_rows)


def count_stored_tables(
    references: Sequence[BlockReference],
    schema: Schema,
    requests: Sequence[TableRequest],
    *,
    client: Client = None,
    budget: float | None = None,
    digest: str = "",
) -> StoredTableCounts:
    """Count tables among stored samples, or among those of some blocks where all would take too long.

    Parameters
    ----------
    references
        Blocks in the order of the dataset.
    schema, requests
        As for `count_tables`.
    client
        Dask client whose workers see the store; None to work in threads of this process, one for each processor.
    budget
        Time that counting may take, seconds of one core, as planned from the sizes of blocks and requests; None counts
        all blocks. It is no time of the clock, and no share of it is given to workers: the same blocks are counted
        with any number of them.
    digest
        Digest of the dataset: it decides on the order in which blocks are drawn. The blocks of a small budget are among
        those of a larger one, and every block is as likely to be drawn as any other.

    Returns
    -------
    The counts, of the same bits for any number of workers. At least one block is counted where there are samples.

    Raises
    ------
    SchemaError
        If a position or a code of a request is not in the schema.
    ConfigError
        If the budget is not above 0.
    MemoryPlanError
        If the tables would not fit in memory.
    StoreError
        If a partition is gone or damaged.

    Notes
    -----
    Counts of drawn blocks are of a sample of clusters: rows of a block often come from one file, and are more alike
    than rows drawn one by one, so that standard errors that take them for independent are too small.
    """
    if budget is not None and not budget > 0:
        raise ConfigError(f"budget is {budget}; give seconds above 0, or None to count all blocks")
    plan = TablePlan.make(schema, requests)
    n_threads = count_processors() if client is None else count_threads(client)
    memory = ClusterMemory.here(n_threads=n_threads) if client is None else find_memory(client)
    memory.check(plan.plan_memory)
    filled, costs, chosen = _choose_blocks(references, plan, budget, digest)
    sums = add_sums(filled[position] for position in chosen)
    shift = None if sums is None else SQUARES_BITS - sums.squares[0].bit_length()
    n_parts = 1 if shift is None else 3
    total = np.zeros(n_parts * plan.n_cells, np.int64)
    if chosen.size:
        runs = [
            [filled[position] for position in chosen[start:stop]]
            for start, stop in plan_tasks(costs[chosen], n_threads).runs
        ]
        total = _count_runs(client, runs, plan, n_threads, shift)
    parts = [plan.split(part, requests) for part in np.split(total, n_parts)]
    weighted = None
    if sums is not None and shift is not None:
        weighted = WeightedTables(parts[1], parts[2], shift, sums)
    return StoredTableCounts(
        parts[0],
        sum(filled[position].n_rows for position in chosen),
        sum(block.n_rows for block in filled),
        chosen.size,
        float(costs[chosen].sum()),
        weighted,
    )


def plan_stored_tables(
    references: Sequence[BlockReference],
    schema: Schema,
    requests: Sequence[TableRequest],
    *,
    budget: float | None = None,
    digest: str = "",
) -> float:
    """Seconds that `count_stored_tables` of the same arguments takes one core, about; nothing is read."""
    _, costs, chosen = _choose_blocks(references, TablePlan.make(schema, requests), budget, digest)
    return float(costs[chosen].sum())


def _choose_blocks(
    references: Sequence[BlockReference], plan: TablePlan, budget: float | None, digest: str
) -> tuple[list[BlockReference], npt.NDArray[np.float64], IntArray]:
    """Blocks that hold samples, the seconds of each, and the positions of those that a budget is enough for."""
    filled = [block for block in references if block.n_rows]
    costs = np.array([plan.plan_seconds(block) for block in filled])
    chosen = np.arange(len(filled)) if budget is None else _draw_blocks(costs, budget, digest)
    return filled, costs, chosen


def _draw_blocks(costs: npt.NDArray[np.float64], budget: float, digest: str) -> IntArray:
    """Positions of the blocks that a budget is enough for, sorted: the first of a random order, at least one."""
    seed = int.from_bytes(hashlib.sha256(digest.encode()).digest()[:8], "little")
    order = np.argsort(mix_hashes(np.arange(costs.size), seed))
    n_drawn = max(1, int(np.searchsorted(np.cumsum(costs[order]), budget, side="right")))
    return np.sort(order[:n_drawn])


def _count_runs(
    client: Client,
    runs: Sequence[Sequence[BlockReference]],
    plan: TablePlan,
    n_threads: int,
    shift: int | None,
) -> IntArray:
    """Counts of runs of blocks, at least one, as `_count_group` has them, on workers or in threads."""
    if client is not None:
        options: dict[str, Any] = {"result_bytes": 8 * plan.n_cells, "name": "tables"}
        return run_blocks(client, _count_group, runs, merge_tables, plan, shift, **options)
    count = partial(_count_group, plan=plan, shift=shift)
    with ThreadPoolExecutor(n_threads, "tables") as pool:
        return merge_tables(list(pool.map(count, runs)))


def _count_group(group: Sequence[BlockReference], plan: TablePlan, shift: int | None) -> IntArray:
    """Cells of samples; with a shift, their weights and the squares of these follow, each as many."""
    if shift is None:
        return count_cells(iterate_blocks(group), plan)
    total = np.zeros((3, plan.n_cells), np.int64)
    # weights are added up exactly, as whole numbers of units
    for block in read_blocks(restore_units(group)):
        assert block.weights is not None
        add_weights(block, plan, square_weights(block.weights, shift), total)
    return total.reshape(-1)
