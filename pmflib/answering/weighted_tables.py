"""Tables among stored samples, with an axis of weights: ones, the weights, their squares, and replicate weights."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pmflib.answering.conditional_tables import PlannedTable, TablePlan, TableRequest, add_cells
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import Block, concatenate_blocks
from pmflib.base.constraints import Interval, check
from pmflib.base.errors import ConfigError
from pmflib.base.hashing import mix_hashes
from pmflib.base.machine import count_processors
from pmflib.base.replicate_weights import ReplicateWeights
from pmflib.base.weights import WeightSums, find_effective_size, vary_independent
from pmflib.cluster.clients import Client, count_threads, find_memory
from pmflib.cluster.maps import run_blocks
from pmflib.cluster.memory import ClusterMemory
from pmflib.cluster.task_plans import plan_tasks
from pmflib.schema import Schema
from pmflib.store.sample_blocks import (
    BLOCK_BYTES,
    BlockReference,
    add_sums,
    read_blocks,
    restore_units,
)
from pmflib.store.stored_variance import StoredReplicates, StoredVariance

SQUARES_BITS = 61
"""Bits of the sums of squared weights."""
JOINED_ROWS = 1 << 14
"""Largest number of rows of small blocks that are counted together, of at most `BLOCK_BYTES`."""


@dataclass(frozen=True, eq=False)
class WeightedTables:
    """Tables of sums of weights and of squared weights.

    Parameters
    ----------
    sums
        int64 tables: sums of the weights of the samples of each cell, in units.
    squares
        int64 tables: sums of the squared weights, each times 2 ** shift and rounded.
    shift
        Chosen such that squares of all samples fit into 62 bits: their sums are the same in any order.
    totals
        Sums of the weights of all samples counted.
    n_groups
        Number of groups of each table, along its first axes, of which each has an effective number of samples.
    sizes
        Effective numbers of samples of the groups of each table by the replicate weights of a design, float64 of shape
        (n_groups,), infinite if shares do not vary; None without a design.
    """

    sums: list[IntArray]
    squares: list[IntArray]
    shift: int
    totals: WeightSums
    n_groups: list[int]
    sizes: list[FloatArray] | None = None

    def to_samples(self, tables: Sequence[IntArray], n_rows: int) -> tuple[list[Any], int]:
        """Convert tables of some number of samples to effective samples, and return their effective number as well.

        Each group of a table has the shares of the weights, and sums to the number of independent samples whose shares
        would vary as much (`pmflib.base.weights.find_effective_size`): by the linearised variance of a ratio, or by the
        design. That number differs from group to group, and is at most the number of samples in it. Equal weights
        without a design give int64 tables of samples.

        References
        ----------
        Kish (1965), Survey Sampling, for design effects; Wolter (2007), Introduction to Variance Estimation, chapter 6.
        """
        if self.sizes is None and self.totals.are_equal(n_rows):
            return list(tables), n_rows
        sizes = [None] * len(self.sums) if self.sizes is None else self.sizes
        parts = zip(tables, self.sums, self.squares, self.n_groups, sizes, strict=True)
        return [_scale(*each, self.shift) for each in parts], round(self.totals.n_effective)


def _scale(
    rows: IntArray,
    sums: IntArray,
    squares: IntArray,
    n_groups: int,
    sizes: FloatArray | None,
    shift: int,
) -> FloatArray:
    """Scale the groups of a table of weights to their effective numbers of samples."""
    held = rows.reshape(n_groups, -1).sum(axis=1)
    found = np.zeros((n_groups, sums.size // n_groups))
    squared = np.ldexp(squares.reshape(found.shape).astype(np.float64), -shift)
    for group in np.flatnonzero(held).tolist():
        own = sums.reshape(found.shape)[group].astype(np.float64)
        total = own.sum()
        shares, squares_of = own / total, squared[group] / total**2
        variance = vary_independent(shares, squares_of)
        if sizes is not None and np.isfinite(sizes[group]):
            variance = float((shares * (1 - shares)).sum()) / float(sizes[group])
        kish = 1 / float(squares_of.sum())
        found[group] = shares * find_effective_size(shares, variance, kish, float(held[group]))
    return found.reshape(sums.shape)


@dataclass(frozen=True, eq=False)
class StoredTableCounts:
    """Tables counted over stored blocks.

    Parameters
    ----------
    tables
        int64 tables in the order of the requests, of shapes (cardinalities of the targets).
    n_rows
        Number of samples in the blocks that were counted.
    n_rows_of_all
        Number of samples in all blocks, which is larger if the budget was too small for them.
    n_blocks
        Number of blocks that were counted.
    seconds
        Planned time of counting them on one core.
    weighted
        Sums of weights; None if samples have no weights.
    """

    tables: list[IntArray]
    n_rows: int
    n_rows_of_all: int
    n_blocks: int
    seconds: float
    weighted: WeightedTables | None = None

    def to_samples(self) -> tuple[list[IntArray], int]:
        """Tables in samples and the number of all, effective ones if samples have weights."""
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
    design: StoredVariance | None = None,
) -> StoredTableCounts:
    """Count tables among stored samples, or among those of some blocks if all would take too long.

    Parameters
    ----------
    references
        Blocks in the order of the dataset.
    schema, requests
        As for `pmflib.answering.conditional_tables.count_tables`.
    client
        Dask client whose workers see the store; None counts in threads of this process, one for each processor.
    budget
        Maximum time of counting in seconds of one core, as planned from the sizes of blocks and requests; None counts
        all blocks. The same blocks are counted for any number of workers.
    digest
        Digest of the dataset, which seeds the order in which blocks are drawn. The blocks of a small budget are among
        those of a larger one, and all blocks are equally likely to be drawn.
    design
        Design of the samples beyond weights, for ``weighted.sizes``. It is ignored if not all blocks are counted, as
        some blocks do not have all samples of a unit, and replicates refer to all.

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
    Drawn blocks are a cluster sample: rows of a block often come from one file and are more alike than rows drawn one
    by one, so that standard errors for independent rows are too small.
    """
    check(
        Interval(0, closed="right", hint="in seconds", also=(None,)),
        ConfigError,
        budget=budget,
    )
    plan = TablePlan.make(schema, requests)
    filled, costs, chosen = _choose_blocks(references, plan, budget, digest)
    blocks = restore_units(filled[position] for position in chosen)
    sums, drawn = add_sums(blocks), None
    if design is not None and sums is not None and len(blocks) == len(filled):
        drawn = design.reduce(blocks)
    weights = _Weights(None if sums is None else SQUARES_BITS - sums.squares[0].bit_length(), drawn)
    n_threads = count_processors() if client is None else count_threads(client)
    memory = ClusterMemory.here(n_threads=n_threads) if client is None else find_memory(client)
    memory.check(partial(plan.plan_memory, n_weights=weights.n_weights))
    found = weights.zero(plan)
    if blocks:
        runs = [blocks[start:stop] for start, stop in plan_tasks(costs[chosen], n_threads).runs]
        if client is None:
            count = partial(_count_group, plan=plan, weights=weights)
            with ThreadPoolExecutor(n_threads, "tables") as pool:
                found = _merge(list(pool.map(count, runs)))
        else:
            options: dict[str, Any] = {"result_bytes": found.total.nbytes, "name": "tables"}
            found = run_blocks(client, _count_group, runs, _merge, plan, weights, **options)
    parts = [plan.split(part, requests) for part in found.total[: 1 if sums is None else 3]]
    weighted = None
    if sums is not None and weights.shift is not None:
        n_groups, sizes = [count_groups(schema, each) for each in requests], None
        if drawn is not None:
            tables = [plan.tables[request] for request in requests]
            each = zip(tables, n_groups, strict=True)
            sizes = [_find_sizes(found, table, n, drawn.record) for table, n in each]
        weighted = WeightedTables(parts[1], parts[2], weights.shift, sums, n_groups, sizes)
    return StoredTableCounts(
        parts[0],
        sum(block.n_rows for block in blocks),
        sum(block.n_rows for block in filled),
        len(blocks),
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
    """Estimate the seconds that `count_stored_tables` of the same arguments takes one core; nothing is read."""
    _, costs, chosen = _choose_blocks(references, TablePlan.make(schema, requests), budget, digest)
    return float(costs[chosen].sum())


def _choose_blocks(
    references: Sequence[BlockReference], plan: TablePlan, budget: float | None, digest: str
) -> tuple[list[BlockReference], FloatArray, IntArray]:
    """Blocks that have samples, the seconds of each, and the positions of those within a budget."""
    filled = [block for block in references if block.n_rows]
    costs = np.array([plan.plan_seconds(block) for block in filled])
    chosen = np.arange(len(filled)) if budget is None else _draw_blocks(costs, budget, digest)
    return filled, costs, chosen


def _draw_blocks(costs: FloatArray, budget: float, digest: str) -> IntArray:
    """Positions of the blocks within a budget, sorted: the first of a random order, at least one."""
    seed = int.from_bytes(hashlib.sha256(digest.encode()).digest()[:8], "little")
    order = np.argsort(mix_hashes(np.arange(costs.size), seed))
    n_drawn = max(1, int(np.searchsorted(np.cumsum(costs[order]), budget, side="right")))
    return np.sort(order[:n_drawn])


@dataclass(frozen=True, eq=False)
class _Weights:
    """Weights that stored samples are counted with: ones, the weights, their squares times 2 ** shift, and replicates.

    Without a shift each sample counts once; ``drawn`` are the replicate weights, if any.
    """

    shift: int | None
    drawn: StoredReplicates | None

    @property
    def n_weights(self) -> int:
        """Number of weights, but for those of sampling units, which have a form of their own."""
        if self.drawn is None or self.drawn.record.is_sparse:
            return 1 if self.shift is None else 3
        return 3 + self.drawn.record.n_columns

    def zero(self, plan: TablePlan) -> _Sums:
        """Return the sums of no samples."""
        total = np.zeros((self.n_weights, plan.n_cells), np.int64)
        return _Sums(total, np.empty((3, 0), np.int64))


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums of weights by cell, int64 of shape (n_weights, n_cells).

    Sums by sampling unit are int64 of shape (3, n_held): unit, cell and sum, if the unit has samples in the cell.
    """

    total: IntArray
    by_unit: IntArray


def _merge(parts: Sequence[_Sums]) -> _Sums:
    total = parts[0].total.copy()
    for part in parts[1:]:
        total += part.total
    return _Sums(total, np.concatenate([part.by_unit for part in parts], axis=1))


def _count_group(group: Sequence[BlockReference], plan: TablePlan, weights: _Weights) -> _Sums:
    """Sums over some blocks, whose weights are read as whole numbers of units and added up exactly."""
    found = weights.zero(plan)
    if weights.shift is None:
        for block in _join_small(read_blocks(group), plan.schema.offsets):
            add_cells(block, plan, None, found.total)
        return found
    by_unit = [found.by_unit]
    for reference, block in zip(group, read_blocks(group), strict=True):
        assert block.weights is not None
        squares = np.rint(np.ldexp(block.weights**2, weights.shift))
        known = np.array([np.ones(block.n_rows), block.weights, squares]).astype(np.int64)
        if weights.drawn is not None:
            drawn = weights.drawn.read(reference)
            if weights.drawn.record.is_sparse:
                by_unit += _sum_by_unit(block, plan, known[1], drawn)
            else:
                known = np.concatenate([known, drawn.T])
        add_cells(block, plan, known, found.total)
    return _Sums(found.total, np.concatenate(by_unit, axis=1))


def _join_small(blocks: Iterable[Block], offsets: IntArray) -> Iterator[Block]:
    """Join consecutive small blocks of one form: a thousand tables of a block are a thousand calls."""
    waiting: list[Block] = []
    for block in blocks:
        n_rows = sum(each.n_rows for each in (*waiting, block))
        nbytes = sum(each.nbytes for each in (*waiting, block))
        is_large = n_rows > JOINED_ROWS or nbytes > BLOCK_BYTES
        if waiting and (is_large or type(block) is not type(waiting[0])):
            yield concatenate_blocks(waiting, offsets)
            waiting = []
        waiting.append(block)
    if waiting:
        yield concatenate_blocks(waiting, offsets)


def _sum_by_unit(
    block: Block, plan: TablePlan, weights: IntArray, drawn: IntArray
) -> Iterator[IntArray]:
    """Sums of weights by sampling unit and cell, of each table: int64 of shape (3, n_held), as `_Sums` has them."""
    units, of_row = np.unique(drawn, return_inverse=True)
    for table, rows, cells in plan.find_cells(block):
        sums = np.zeros(units.size * table.n_cells, np.int64)
        np.add.at(sums, of_row[rows] * table.n_cells + cells, weights[rows])
        held = np.flatnonzero(sums)
        owners, places = np.divmod(held, table.n_cells)
        yield np.stack([units[owners], table.start + places, sums[held]])


def count_groups(schema: Schema, request: TableRequest) -> int:
    """Number of groups of a table that have an effective number of samples each."""
    return math.prod(int(schema.cardinalities[each]) for each in request.targets[: request.n_given])


def _find_sizes(
    found: _Sums, table: PlannedTable, n_groups: int, record: ReplicateWeights
) -> FloatArray:
    """Effective numbers of samples of the groups of a table by the replicate weights of a design, (n_groups,).

    They are infinite if shares do not vary.
    """
    whole = found.total[1, table.cells].astype(np.float64).reshape(n_groups, -1)
    by_column = found.total[3:, table.cells]
    if record.is_sparse:
        units, cells, sums = found.by_unit
        mine = np.flatnonzero((cells >= table.start) & (cells < table.cells.stop))
        by_column = np.zeros((record.n_columns, table.n_cells), np.int64)
        np.add.at(by_column, (units[mine], cells[mine] - table.start), sums[mine])
    columns = by_column.astype(np.float64).reshape(len(by_column), *whole.shape)
    sizes = np.full(n_groups, np.inf)
    for group in np.flatnonzero(whole.any(axis=1)).tolist():
        shares = whole[group] / whole[group].sum()
        spread = float((shares * (1 - shares)).sum())
        variance = record.vary_shares(columns[:, group], shares)
        if spread > 0 < variance:
            sizes[group] = spread / variance
    return sizes
