"""Tables of several variables among samples that meet conditions, in memory and over stored blocks.

All tables are counted in one pass. A condition is evaluated once for all tables that share it. Sums of weights have a
leading axis of weights: ones, the weights of the samples, their squares, or replicate weights.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pmflib.cluster.clients import Client, count_threads, find_memory
from pmflib.cluster.maps import run_blocks
from pmflib.cluster.memory import ClusterMemory, MemoryPlan
from pmflib.cluster.task_plans import plan_tasks
from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.blocks import Block, DenseBlock
from pmflib.core.errors import ConfigError, SchemaError
from pmflib.core.hashing import mix_hashes
from pmflib.core.machine import count_processors
from pmflib.core.weights import WeightSums
from pmflib.counting.stored_pairs import merge_tables
from pmflib.schema import Schema
from pmflib.store.sample_blocks import (
    BLOCK_BYTES,
    MAX_BLOCK_ROWS,
    BlockReference,
    add_sums,
    read_blocks,
    restore_units,
)

CodeSets: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]
"""Conditions: pairs of a variable's position and its allowed codes."""

SQUARES_BITS = 61
"""Number of bits for sums of squared weights."""
READ_BYTES = 650e6
"""Bytes of memory that a core decompresses per second. Counting a code takes about as long as decompressing a byte."""
MOST_JOINED = np.iinfo(np.int16).max
"""Maximum number of cells with int16 indices."""


@dataclass(frozen=True)
class TableRequest:
    """Request for a table; requests with the same conditions in a different order are equal.

    Parameters
    ----------
    targets
        Positions of the variables on the axes of the table, in order; an empty tuple requests a single count.
    given
        Position of each variable in the conditions, and its allowed codes, at least one; sorted, without duplicates. A
        sample in which the variable is missing does not meet the condition.

    Raises
    ------
    SchemaError
        If a position is repeated among the targets or among the conditions, or a condition has no code.
    """

    targets: tuple[int, ...]
    given: CodeSets = ()

    def __post_init__(self) -> None:
        targets = tuple(map(int, self.targets))
        given = tuple(
            sorted((int(j), tuple(sorted({*map(int, codes)}))) for j, codes in self.given)
        )
        if len(set(targets)) < len(targets):
            raise SchemaError(
                f"targets is {targets}: a position is repeated; give each position once"
            )
        if len({position for position, _ in given}) < len(given):
            raise SchemaError(
                f"given is {given}: a position is repeated; give the codes that both conditions allow"
            )
        if empty := [position for position, codes in given if not codes]:
            raise SchemaError(
                f"given[{empty[0]}] is empty; give at least one code, or omit this condition"
            )
        object.__setattr__(self, "targets", targets)
        object.__setattr__(self, "given", given)

    @property
    def positions(self) -> set[int]:
        """Return the positions of all variables used by the table."""
        return {*self.targets, *(position for position, _ in self.given)}

    def to_json(self) -> dict[str, Any]:
        """Return targets and conditions as plain JSON types."""
        given = [[position, list(codes)] for position, codes in self.given]
        return {"targets": list(self.targets), "given": given}

    @property
    def digest(self) -> str:
        """Return the SHA-256 digest of the JSON form, in hexadecimal, which is stable across versions and processes."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class PlannedTable:
    """Shape of a table, and the position of its first cell in the concatenated cells of all tables."""

    targets: tuple[int, ...]
    shape: tuple[int, ...]
    start: int

    @property
    def n_cells(self) -> int:
        """Return the number of cells."""
        return math.prod(self.shape)

    @property
    def cells(self) -> slice:
        """Return the slice of its cells among those of all tables."""
        return slice(self.start, self.start + self.n_cells)


@dataclass(frozen=True, eq=False)
class TablePlan:
    """Distinct table requests and the positions of their cells.

    Parameters
    ----------
    schema
        Variables of the samples.
    tables
        Planned table of each distinct request.
    n_cells
        Number of cells in all tables.
    """

    schema: Schema
    tables: dict[TableRequest, PlannedTable]
    n_cells: int

    @classmethod
    def make(cls, schema: Schema, requests: Iterable[TableRequest]) -> TablePlan:
        """Validate requests against a schema, and assign cells to them.

        Raises
        ------
        SchemaError
            If a position or a code is not in the schema.
        """
        sizes = schema.cardinalities.tolist()
        tables: dict[TableRequest, PlannedTable] = {}
        n_cells = 0
        for request in dict.fromkeys(requests):
            _check_request(request, schema)
            shape = tuple(sizes[position] for position in request.targets)
            tables[request] = PlannedTable(request.targets, shape, n_cells)
            n_cells += tables[request].n_cells
        return cls(schema, tables, n_cells)

    @cached_property
    def used(self) -> IntArray:
        """Return the sorted positions of the variables used by any table: int64 of shape (n_used,)."""
        return np.array(sorted(set().union(*(each.positions for each in self.tables))), np.int64)

    @cached_property
    def by_conditions(self) -> dict[CodeSets, list[PlannedTable]]:
        """Group the tables by their conditions."""
        groups: dict[CodeSets, list[PlannedTable]] = {}
        for request, table in self.tables.items():
            groups.setdefault(request.given, []).append(table)
        return groups

    def find_cells(self, block: Block) -> Iterator[tuple[PlannedTable, IntArray, IntArray]]:
        """Yield each table with the rows of a block that it counts, at least one, and their cells in the flat table."""
        for table, taken, is_met in self._iterate_tables(block):
            rows, cells = _find_cells(table, taken, is_met)
            if rows.size:
                yield table, rows, cells

    def add_rows(self, block: Block, total: IntArray) -> None:
        """Add the number of rows in each cell to int64 of shape (n_cells,), in place."""
        for table, taken, is_met in self._iterate_tables(block):
            # cell 0 of each axis is for rows that do not count, so that none needs to be removed
            padded = tuple(size + 1 for size in table.shape)
            n_padded = math.prod(padded)
            if n_padded > block.n_rows or not padded:
                np.add.at(total[table.cells], _find_cells(table, taken, is_met)[1], 1)
                continue
            numbers: IntArray = taken[0] if n_padded <= MOST_JOINED else taken[0].astype(np.int64)
            for size, codes in zip(padded[1:], taken[1:], strict=True):
                numbers = numbers * size
                numbers += codes
            if not is_met.all():
                numbers = numbers * is_met
            found = _count_numbers(numbers, n_padded).reshape(padded)
            total[table.cells] += found[(slice(1, None),) * len(padded)].reshape(-1)

    def _iterate_tables(
        self, block: Block
    ) -> Iterator[tuple[PlannedTable, IntArray, npt.NDArray[np.bool_]]]:
        """Yield tables, codes of their targets, 0 missing, (n_targets, n_rows), and which rows meet the conditions."""
        columns = self._read_columns(block)
        place = {position: k for k, position in enumerate(self.used.tolist())}
        for conditions, tables in self.by_conditions.items():
            is_met = np.ones(block.n_rows, np.bool_)
            for position, codes in conditions:
                is_allowed = np.zeros(self.schema[position].cardinality + 1, np.bool_)
                is_allowed[1 + np.array(codes)] = True
                is_met &= is_allowed[columns[place[position]]]
            if is_met.any():
                for table in tables:
                    yield table, columns[[place[position] for position in table.targets]], is_met

    def _read_columns(self, block: Block) -> IntArray:
        """Return codes of the used variables from 1, 0 if missing: int16 of shape (n_used, n_rows)."""
        if isinstance(block, DenseBlock):
            return np.add(block.codes[:, self.used].T, 1, dtype=np.int16, order="C")
        offsets = self.schema.offsets
        columns = np.zeros((self.used.size, block.n_rows), np.int16)
        owners = np.full(self.schema.n_variables, -1, np.int64)
        owners[self.used] = np.arange(self.used.size)
        variables = np.searchsorted(offsets, block.indices, side="right") - 1
        kept = np.flatnonzero(owners[variables] >= 0)
        rows = np.repeat(np.arange(block.n_rows), np.diff(block.indptr))[kept]
        variables = variables[kept]
        columns[owners[variables], rows] = 1 + block.indices[kept] - offsets[variables]
        return columns

    def split(self, total: IntArray, requests: Iterable[TableRequest]) -> list[IntArray]:
        """Split the cells of all tables into one array per request; requests may be repeated."""
        tables = [self.tables[request] for request in requests]
        return [total[table.cells].reshape(table.shape).copy() for table in tables]

    def plan_seconds(self, block: BlockReference) -> float:
        """Estimate the time of reading and counting a block on one core, seconds, if all samples met the conditions."""
        n_steps = sum(1 + len(each.targets) + len(each.given) for each in self.tables)
        return (block.nbytes + n_steps * block.n_rows) / READ_BYTES

    def plan_memory(self, n_threads: int) -> MemoryPlan:
        """Plan the memory of counting, which does not depend on the number of samples."""
        table, n_waiting = 8 * self.n_cells, plan_tasks([1] * n_threads, n_threads).n_waiting
        return MemoryPlan(
            "counting tables under conditions",
            {
                f"cells of {len(self.tables)} tables, per thread and during merging": table
                * (n_threads + n_waiting),
                "sample blocks and cells of samples": n_threads
                * (4 * BLOCK_BYTES + 64 * MAX_BLOCK_ROWS),
            },
            "Request fewer tables at a time, or tables with fewer variables.",
            {"cells of all tables": 2 * table},
        )


def _find_cells(
    table: PlannedTable, taken: IntArray, is_met: npt.NDArray[np.bool_]
) -> tuple[IntArray, IntArray]:
    """Return the rows that meet the conditions with all targets observed, and their cells in the flat table."""
    rows = np.flatnonzero(is_met & (taken > 0).all(axis=0))
    cells = np.zeros(rows.size, np.int64)
    for size, codes in zip(table.shape, taken, strict=True):
        cells *= size
        cells += codes[rows]
        cells -= 1
    return rows, cells


def _count_numbers(numbers: IntArray, n_numbers: int) -> IntArray:
    """Count numbers in [0, n_numbers), two rows at a time if pairs of numbers fit in int16."""
    if n_numbers**2 > min(MOST_JOINED, numbers.size):
        return np.bincount(numbers, minlength=n_numbers)
    half = numbers.size // 2
    joined = numbers[:half] * n_numbers + numbers[half : 2 * half]
    pairs = np.bincount(joined, minlength=n_numbers**2).reshape(n_numbers, n_numbers)
    found: IntArray = pairs.sum(axis=0) + pairs.sum(axis=1)
    found[numbers[2 * half :]] += 1
    return found


def _check_request(request: TableRequest, schema: Schema) -> None:
    n_variables = schema.n_variables
    for position in sorted(request.positions):
        if not 0 <= position < n_variables:
            raise SchemaError(
                f"a request names position {position}; the schema has {n_variables} variables, 0 to {n_variables - 1}"
            )
    for position, codes in request.given:
        variable = schema[position]
        if codes[0] < 0 or codes[-1] >= variable.cardinality:
            raise SchemaError(
                f"given[{position}] has codes {codes}; those of variable {variable.name!r} are 0 to "
                f"{variable.cardinality - 1}, and missing is not one of them"
            )


def count_tables(
    blocks: Iterable[Block], schema: Schema, requests: Sequence[TableRequest]
) -> list[IntArray]:
    """Count tables over blocks of samples in one pass.

    Parameters
    ----------
    blocks
        Valid samples of any size, dense or sparse; iterated once. Each row counts once, regardless of its weight.
    schema
        Variables of the samples.
    requests
        Tables to count; equal requests are counted once.

    Returns
    -------
    One array per request, int64 of shape (cardinalities of the targets): number of samples at each combination of
    levels, among those that meet all conditions and have all targets observed.

    Raises
    ------
    SchemaError
        If a position or a code of a request is not in the schema.
    MemoryPlanError
        If the tables do not fit in memory.
    """
    plan = TablePlan.make(schema, requests)
    find_memory(None).check(plan.plan_memory)
    total = np.zeros((1, plan.n_cells), np.int64)
    for block in blocks:
        for start in range(0, block.n_rows, MAX_BLOCK_ROWS):
            part = block.cut(start, min(start + MAX_BLOCK_ROWS, block.n_rows))
            add_cells(part, plan, None, total)
    return plan.split(total[0], requests)


def add_cells(block: Block, plan: TablePlan, weights: IntArray | None, total: IntArray) -> None:
    """Add the weights of samples to the cells of all tables, in place.

    Parameters
    ----------
    block
        Samples, at most `MAX_BLOCK_ROWS`.
    plan
        Tables to count.
    weights
        int64 of shape (n_weights, n_rows); None counts each sample once.
    total
        int64 of shape (n_weights, n_cells); (1, n_cells) without weights.
    """
    if weights is None:
        plan.add_rows(block, total[0])
        return
    for table, rows, cells in plan.find_cells(block):
        for each, own in zip(total[:, table.cells], weights, strict=True):
            np.add.at(each, cells, own[rows])


@dataclass(frozen=True, eq=False)
class WeightedTables:
    """Tables of sums of weights and of squared weights, with the counts of samples.

    Parameters
    ----------
    sums
        int64 tables: sum of the weights in each cell, in units.
    squares
        int64 tables: sum of the squared weights times 2 ** shift, each rounded.
    shift
        Chosen so that the squares of all samples fit in 62 bits, which makes their sums independent of the order.
    totals
        Totals of the weights of all counted samples.
    sizes
        Effective sample size of each table by its sampling units or replicates, infinite if the totals do not vary;
        None if these are unknown.
    """

    sums: list[IntArray]
    squares: list[IntArray]
    shift: int
    totals: WeightSums
    sizes: list[float] | None = None

    def to_samples(self, tables: Sequence[IntArray], n_rows: int) -> tuple[list[Any], int]:
        """Convert tables to effective samples; also returns the effective number of all ``n_rows`` samples.

        A table keeps its weighted shares, and its total is the number of independent samples whose shares would have
        the same variance: the linearised variance of a ratio, summed over the cells, by sampling units if these are
        known. The number differs between tables and never exceeds the number of samples in the table. With equal
        weights and without units, the result is the unweighted tables, int64.

        References
        ----------
        Kish (1965), Survey Sampling, for design effects; Wolter (2007), Introduction to Variance Estimation, chapter 6.
        """
        if self.sizes is None and self.totals.are_equal(n_rows):
            return list(tables), n_rows
        worth = self._find_worth(tables)
        found = [
            each * (n / max(int(each.sum()), 1)) for each, n in zip(self.sums, worth, strict=True)
        ]
        return found, round(self.totals.n_effective)

    def _find_worth(self, tables: Sequence[IntArray]) -> list[float]:
        sizes = [None] * len(self.sums) if self.sizes is None else self.sizes
        each = zip(tables, self.sums, self.squares, sizes, strict=True)
        return [_find_worth(*one, self.shift) for one in each]


def _find_worth(
    rows: IntArray, sums: IntArray, squares: IntArray, size: float | None, shift: int
) -> float:
    """Return the effective size of a table; see `WeightedTables.to_samples`."""
    total = float(sums.sum())
    if not total:
        return 0.0
    shares, squared = sums / total, np.ldexp(squares.astype(np.float64), -shift)
    spread = float((shares * (1 - shares)).sum())
    variance = float((squared * (1 - 2 * shares) + shares**2 * squared.sum()).sum()) / total**2
    # if all rows are in one cell, use Kish's formula
    n = spread / variance if spread > 0 < variance else total**2 / float(squared.sum())
    if size is not None and math.isfinite(size):
        n = size
    return min(n, float(rows.sum()))


@dataclass(frozen=True, eq=False)
class StoredTableCounts:
    """Tables counted over stored blocks, and the number of blocks counted.

    Parameters
    ----------
    tables
        int64 tables in the order of the requests, with the cardinalities of the targets as shapes.
    n_rows
        Number of samples in the counted blocks.
    n_rows_of_all
        Number of samples in all blocks; larger than ``n_rows`` if the budget was too small for them.
    n_blocks
        Number of counted blocks.
    seconds
        Planned time of counting them on one core, seconds.
    weighted
        Total weight of the counted samples, if they are weighted; tables are then sums of weights in its unit.
    """

    tables: list[IntArray]
    n_rows: int
    n_rows_of_all: int
    n_blocks: int
    seconds: float
    weighted: WeightedTables | None = None

    def to_samples(self) -> tuple[list[IntArray], int]:
        """Return tables in samples and the total number; uses `WeightedTables` if the samples are weighted."""
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
    """Count tables over stored samples, or over a random choice of blocks if a budget is given.

    Parameters
    ----------
    references
        Blocks in the order of the dataset.
    schema, requests
        As for `count_tables`.
    client
        Dask client whose workers see the store; None to work in threads of this process, one for each processor.
    budget
        Time limit for counting, in seconds on one core, as planned from the sizes of blocks and requests; None counts
        all blocks. It is not elapsed time and is not divided among workers, so the same blocks are counted for any
        number of workers.
    digest
        Digest of the dataset, which determines the order in which blocks are drawn. The blocks of a small budget are
        among those of a larger one, and all blocks are equally likely to be drawn.

    Returns
    -------
    The counts, with equal bits for any number of workers. At least one block is counted if there are samples.

    Raises
    ------
    SchemaError
        If a position or a code of a request is not in the schema.
    ConfigError
        If the budget is not above 0.
    MemoryPlanError
        If the tables do not fit in memory.
    StoreError
        If a partition is missing or damaged.

    Notes
    -----
    Drawn blocks are a cluster sample: rows of a block often come from one file and are more alike than independently
    drawn rows, so standard errors that assume independence are too small.
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
    total = np.zeros((1 if shift is None else 3, plan.n_cells), np.int64)
    if chosen.size:
        runs = [
            [filled[position] for position in chosen[start:stop]]
            for start, stop in plan_tasks(costs[chosen], n_threads).runs
        ]
        if client is None:
            count = partial(_count_group, plan=plan, shift=shift)
            with ThreadPoolExecutor(n_threads, "tables") as pool:
                total = merge_tables(list(pool.map(count, runs)))
        else:
            options: dict[str, Any] = {"result_bytes": total.nbytes, "name": "tables"}
            total = run_blocks(client, _count_group, runs, merge_tables, plan, shift, **options)
    parts = [plan.split(part, requests) for part in total]
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
    """Estimate the time of `count_stored_tables` on one core, seconds, without reading anything."""
    _, costs, chosen = _choose_blocks(references, TablePlan.make(schema, requests), budget, digest)
    return float(costs[chosen].sum())


def _choose_blocks(
    references: Sequence[BlockReference], plan: TablePlan, budget: float | None, digest: str
) -> tuple[list[BlockReference], FloatArray, IntArray]:
    """Return non-empty blocks, the cost of each in seconds, and the positions of those that fit in the budget."""
    filled = [block for block in references if block.n_rows]
    costs = np.array([plan.plan_seconds(block) for block in filled])
    chosen = np.arange(len(filled)) if budget is None else _draw_blocks(costs, budget, digest)
    return filled, costs, chosen


def _draw_blocks(costs: FloatArray, budget: float, digest: str) -> IntArray:
    """Return the sorted positions of the blocks that fit in the budget: the first of a random order, at least one."""
    seed = int.from_bytes(hashlib.sha256(digest.encode()).digest()[:8], "little")
    order = np.argsort(mix_hashes(np.arange(costs.size), seed))
    n_drawn = max(1, int(np.searchsorted(np.cumsum(costs[order]), budget, side="right")))
    return np.sort(order[:n_drawn])


def _count_group(group: Sequence[BlockReference], plan: TablePlan, shift: int | None) -> IntArray:
    """Count samples into cells, int64 of shape (1, n_cells); with a shift, add weights and squares: (3, n_cells)."""
    total = np.zeros((1 if shift is None else 3, plan.n_cells), np.int64)
    # weights are summed exactly, as integers in units
    for block in read_blocks(restore_units(group)):
        weights = None
        if shift is not None:
            assert block.weights is not None
            squares = np.rint(np.ldexp(block.weights**2, shift))
            weights = np.array([np.ones(block.n_rows), block.weights, squares]).astype(np.int64)
        add_cells(block, plan, weights, total)
    return total
