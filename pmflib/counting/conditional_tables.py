"""Tables of some variables among the samples that meet conditions, counted in one pass over blocks of samples.

Many tables are counted at once, from bit sets that they share: a bit for each sample, 64 to a word. A condition is the
OR of the sets of its codes, conditions together are the AND of theirs, and a cell of a table is the number of ones of
the AND of these and of the sets of its levels. Where a table has many cells, or few samples meet the conditions, those
samples are taken out and their cells are added up instead: the same integers.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.blocks import Block, DenseBlock
from pmflib.core.errors import ConfigError, SchemaError
from pmflib.core.hashing import mix_hashes
from pmflib.core.machine import count_processors
from pmflib.core.weights import WeightSums
from pmflib.counting.stored_pairs import merge_tables
from pmflib.running.clients import Client, count_threads, find_memory
from pmflib.running.maps import run_blocks
from pmflib.running.memory import ClusterMemory, MemoryPlan
from pmflib.running.task_plans import plan_tasks
from pmflib.schema import Schema
from pmflib.store.sample_blocks import (
    BLOCK_BYTES,
    BlockReference,
    add_sums,
    iterate_blocks,
    read_blocks,
    restore_units,
)

BitArray: TypeAlias = npt.NDArray[np.uint64]
CodeSets: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]
"""Conditions: position of each variable, and the codes that it may have."""

TILE_ROWS = 65_536
"""Samples counted at a time, at most: a bit set of them takes 8 KiB, and several stay in the cache of the core."""
TILE_BYTES = 16 << 20
"""Size of the codes and bit sets of the samples that are counted at a time, bytes, about and at most."""
WORD_ROWS = 64
"""Samples of a word of a bit set."""
BIT_CELLS = 64
"""Most cells of a table that are counted by bit sets: from about two hundred on, adding up samples is always faster."""
BIT_LEVELS = 16
"""Most levels of a variable whose conditions are made of the bit sets of its levels, which conditions and tables share.
A set of a variable with more is looked up sample by sample, in the time of making about ten sets of levels."""

WORD_NS = 1.2
"""Nanoseconds of a cell of a table for each word of a bit set, in NumPy, on a core with AVX-512, as all times below:
`python -m benchmarks.counting.conditional_tables` prints what a plan made of them says beside what counting took."""
UNPACK_NS = 0.5
"""Nanoseconds of finding those that are in a bit set, for each sample that may be."""
FOUND_NS = 2.0
"""Nanoseconds of adding up a sample that was found, for each variable of the table and once more."""
COLUMN_NS = 0.4
"""Nanoseconds of taking the code of a sample out of its block."""
SET_NS = 0.1
"""Nanoseconds of making a bit set, for each sample."""
TABLE_NS = 2e4
"""Nanoseconds of a table for the samples that are counted at a time, however few."""
SQUARES_BITS = 61
"""Bits that sums of squared weights are kept with."""
READ_BYTES = 650e6
"""Blocks that a core decompresses in a second, bytes in memory: as in the table of speeds of `pmf plan`."""


@dataclass(frozen=True)
class TableRequest:
    """A table to count: equal requests are equal objects, however their conditions were ordered.

    Parameters
    ----------
    targets
        Positions of the variables that the table has an axis for, in the order of the axes; none asks for one number.
    given
        Position of each variable of a condition, and the codes that it may have, at least one; kept in order, each code
        once. A sample that lacks the variable does not meet the condition.

    Raises
    ------
    SchemaError
        If a position occurs twice among the targets or among the conditions, or a condition has no code.
    """

    targets: tuple[int, ...]
    given: CodeSets = ()

    def __post_init__(self) -> None:
        targets = tuple(map(int, self.targets))
        given = tuple(
            sorted((int(j), tuple(sorted({*map(int, codes)}))) for j, codes in self.given)
        )
        if len(set(targets)) < len(targets):
            raise SchemaError(f"targets is {targets}: a position occurs twice; give each once")
        if len({position for position, _ in given}) < len(given):
            raise SchemaError(
                f"given is {given}: a position occurs twice; give the codes that both conditions allow"
            )
        if empty := [position for position, codes in given if not codes]:
            raise SchemaError(
                f"given[{empty[0]}] is empty; give at least one code, or leave it out"
            )
        object.__setattr__(self, "targets", targets)
        object.__setattr__(self, "given", given)

    @property
    def positions(self) -> set[int]:
        """Positions of all variables that the table depends on."""
        return {*self.targets, *(position for position, _ in self.given)}

    def find_cells(self, codes: IntArray, shape: Sequence[int]) -> tuple[IntArray, IntArray]:
        """Rows that meet all conditions and have all targets, and the cell of each in the flat table.

        Parameters
        ----------
        codes
            Shape (n_rows, n_variables), -1 missing.
        shape
            Cardinalities of the targets.
        """
        meets, cells = np.ones(len(codes), np.bool_), np.zeros(len(codes), np.int64)
        for position, levels in self.given:
            meets &= np.isin(codes[:, position], levels)
        for position, size in zip(self.targets, shape, strict=True):
            meets &= codes[:, position] >= 0
            cells = cells * size + codes[:, position]
        rows = np.flatnonzero(meets)
        return rows, cells[rows]

    def to_json(self) -> dict[str, Any]:
        """Targets and conditions as plain JSON types."""
        given = [[position, list(codes)] for position, codes in self.given]
        return {"targets": list(self.targets), "given": given}

    @property
    def digest(self) -> str:
        """SHA-256 of the JSON form, in hexadecimal: equal requests, equal digests, in any version and process."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


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
    weights
        What the weights of the samples counted add up to, where they have any: tables are then sums of weights, in its
        unit.
    seconds
        What the plan says that counting them takes one core, seconds.
    weighted
        What the weights of the samples add up to, where they have any.
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


@dataclass(frozen=True, eq=False)
class WeightedTables:
    """Tables of sums of weights and of their squares, beside those of the numbers of samples.

    Parameters
    ----------
    sums
        int64 tables: weights of the samples of each cell, in units.
    squares
        int64 tables: squares of these weights, times 2 ** shift, each rounded.
    shift
        Such that squares of all samples fit into 62 bits: their sums are the same in any order.
    totals
        What the weights of all samples counted add up to.
    sizes
        Independent samples that each table is worth by its sampling units, infinite where their totals do not vary;
        None where units are not known.
    """

    sums: list[IntArray]
    squares: list[IntArray]
    shift: int
    totals: WeightSums
    sizes: list[float] | None = None

    def to_samples(self, tables: Sequence[IntArray], n_rows: int) -> tuple[list[Any], int]:
        """Tables in effective samples, and the effective number of all so many rows.

        A table has the shares of the weights, and the number of independent samples whose shares would vary as much:
        by the linearised variance of a ratio, added up over the cells; of units, where these are known. It is another
        one for every table, and never above the number of samples in it. Equal weights, without units, give the tables
        of samples, int64.

        References
        ----------
        Kish (1965), Survey Sampling, for design effects; Wolter (2007), Introduction to Variance Estimation, chapter 6.
        """
        if self.sizes is None and self.totals.are_equal(n_rows):
            return list(tables), n_rows
        sizes = [None] * len(self.sums) if self.sizes is None else self.sizes
        found = [
            _find_effective(*each, self.shift)
            for each in zip(tables, self.sums, self.squares, sizes, strict=True)
        ]
        return found, round(self.totals.n_effective)


def _find_effective(
    rows: IntArray, sums: IntArray, squares: IntArray, size: float | None, shift: int
) -> FloatArray:
    """Shares of weights times the number of samples that they are worth: see `WeightedTables.to_samples`."""
    total = float(sums.sum())
    if not total:
        return np.zeros(sums.shape)
    shares, squared = sums / total, np.ldexp(squares.astype(np.float64), -shift)
    spread = float((shares * (1 - shares)).sum())
    variance = float((squared * (1 - 2 * shares) + shares**2 * squared.sum()).sum()) / total**2
    # where all are in one cell, their number is Kish's
    n = spread / variance if spread > 0 < variance else total**2 / float(squared.sum())
    if size is not None and math.isfinite(size):
        n = size
    return np.asarray(shares * min(n, float(rows.sum())))


def count_tables(
    blocks: Iterable[Block], schema: Schema, requests: Sequence[TableRequest]
) -> list[IntArray]:
    """Count tables among the samples of blocks, in one pass.

    Parameters
    ----------
    blocks
        Valid samples, taken one at a time; of any size, dense or sparse. Rows count once each, whatever their weights.
    schema
        Variables of the samples.
    requests
        Tables to count; equal ones are counted once.

    Returns
    -------
    A table of its own for each request, int64 of shape (cardinalities of the targets): the samples that meet all
    conditions and in which all targets are observed, by the levels of the targets.

    Raises
    ------
    SchemaError
        If a position or a code of a request is not in the schema.
    MemoryPlanError
        If the tables would not fit in memory.
    """
    plan = TablePlan.make(schema, requests)
    find_memory(None).check(plan.plan_memory)
    return plan.split(_count(blocks, plan), requests)


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
        return _count(iterate_blocks(group), plan)
    total = np.zeros((3, plan.n_cells), np.int64)
    # weights are added up exactly, as whole numbers of units
    for block in read_blocks(restore_units(group)):
        _add_weighted(block, plan, shift, total)
    return total.reshape(-1)


def _count(blocks: Iterable[Block], plan: TablePlan) -> IntArray:
    """Cells of all tables of a plan, end to end: int64 of shape (n_cells,)."""
    total = np.zeros(plan.n_cells, np.int64)
    waiting = _WaitingColumns(plan)
    for block in blocks:
        for tile in waiting.add(block):
            _add_tile(tile, plan, total)
    _add_tile(waiting.take(), plan, total)
    return total


def _add_weighted(block: Block, plan: TablePlan, shift: int, total: IntArray) -> None:
    """Add samples, their weights in units and squares of these to the cells of all tables, in place."""
    assert block.weights is not None
    codes, squares = block.to_codes(plan.offsets), np.ldexp(block.weights**2, shift)
    added = np.stack([np.ones(len(codes)), block.weights, np.rint(squares)]).astype(np.int64)
    for request, table in plan.tables.items():
        rows, cells = request.find_cells(codes, table.shape)
        for part, each in zip(total, added, strict=True):
            np.add.at(part[table.start : table.stop], cells, each[rows])


@dataclass(frozen=True)
class _PlannedTable:
    """A table among those of a plan: its targets, its shape, and where its cells are, end to end."""

    targets: tuple[int, ...]
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        return self.start + math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class TablePlan:
    """Distinct requests as they are counted: by their conditions, which are met once for all tables that share them.

    Parameters
    ----------
    offsets
        int64 of shape (n_variables + 1,).
    tables
        Where the cells of each distinct request are.
    """

    offsets: IntArray
    tables: dict[TableRequest, _PlannedTable]

    @classmethod
    def make(cls, schema: Schema, requests: Iterable[TableRequest]) -> TablePlan:
        """Check requests against a schema, and assign cells to them.

        Raises
        ------
        SchemaError
            If a position or a code is not in the schema.
        """
        sizes = schema.cardinalities.tolist()
        tables: dict[TableRequest, _PlannedTable] = {}
        n_cells = 0
        for request in requests:
            if request in tables:
                continue
            _check_request(request, schema)
            shape = tuple(sizes[position] for position in request.targets)
            tables[request] = _PlannedTable(request.targets, shape, n_cells)
            n_cells = tables[request].stop
        return cls(schema.offsets, tables)

    @property
    def n_cells(self) -> int:
        """Cells of all tables together."""
        return max((table.stop for table in self.tables.values()), default=0)

    @cached_property
    def used(self) -> IntArray:
        """Positions of the variables that any table depends on, sorted: int64 of shape (n_used,)."""
        return np.array(sorted(set().union(*(each.positions for each in self.tables))), np.int64)

    @cached_property
    def by_given(self) -> dict[CodeSets, list[_PlannedTable]]:
        """Tables by their conditions."""
        groups: dict[CodeSets, list[_PlannedTable]] = {}
        for request, table in self.tables.items():
            groups.setdefault(request.given, []).append(table)
        return groups

    @property
    def code_dtype(self) -> np.dtype[Any]:
        """As `Schema.code_dtype`."""
        return np.dtype(np.int8 if np.diff(self.offsets).max() <= 127 else np.int16)

    @cached_property
    def n_sets(self) -> int:
        """Bit sets that are made of the samples that are counted at a time, at most."""
        sizes = np.diff(self.offsets)[self.used]
        conditions = {condition for given in self.by_given for condition in given}
        return int(sizes[sizes <= BIT_CELLS].sum()) + self.used.size + len(conditions) + 1

    @cached_property
    def tile_rows(self) -> int:
        """Samples that are counted at a time: a multiple of 64 that fits `TILE_BYTES`."""
        row_bytes = self.used.size * self.code_dtype.itemsize + self.n_sets / 8
        n_words = int(TILE_BYTES / row_bytes) // WORD_ROWS
        return min(TILE_ROWS, WORD_ROWS * max(1, n_words))

    def split(self, total: IntArray, requests: Iterable[TableRequest]) -> list[IntArray]:
        """Tables of requests, which need not be distinct, from the cells of all: arrays of their own."""
        tables = [self.tables[request] for request in requests]
        return [total[table.start : table.stop].reshape(table.shape).copy() for table in tables]

    @cached_property
    def _row_ns(self) -> float:
        """Nanoseconds of counting a sample, about, if all samples met the conditions."""
        total = self.used.size * COLUMN_NS + self.n_sets * SET_NS
        for table in self.tables.values():
            n_cells, n_axes = table.stop - table.start, len(table.targets)
            by_bits = n_cells * WORD_NS / WORD_ROWS
            by_samples = UNPACK_NS + (1 + n_axes) * FOUND_NS
            total += TABLE_NS / self.tile_rows + (by_bits if n_cells <= BIT_CELLS else by_samples)
        return total

    def plan_seconds(self, block: BlockReference) -> float:
        """Seconds that reading and counting a block takes one core, about: the most, for any conditions."""
        return block.nbytes / READ_BYTES + 1e-9 * self._row_ns * block.n_rows

    def plan_memory(self, n_threads: int) -> MemoryPlan:
        """Memory of counting: independent of the number of samples."""
        table, n_waiting = 8 * self.n_cells, plan_tasks([1] * n_threads, n_threads).n_waiting
        return MemoryPlan(
            "counting tables under conditions",
            {
                f"cells of {len(self.tables)} tables, for each thread and as they are merged": table
                * (n_threads + n_waiting),
                "sample blocks and bit sets": n_threads * (4 * BLOCK_BYTES + 3 * TILE_BYTES),
            },
            "Ask for fewer tables at a time, or for tables of fewer variables.",
            {"cells of all tables": 2 * table},
        )


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
                f"{variable.cardinality - 1}, and missing is none"
            )


class _Tile:
    """Codes of some samples, a row for each variable that is used, and the bit sets made of them so far.

    Parameters
    ----------
    plan
        What is to be counted.
    columns
        Codes of shape (n_used, n_padded), -1 missing; n_padded is a multiple of 64, and all is missing from n_rows on.
    n_rows
        Number of samples.
    """

    def __init__(self, plan: TablePlan, columns: IntArray, n_rows: int) -> None:
        self.n_padded = columns.shape[1]
        self._columns = dict(zip(plan.used.tolist(), columns, strict=True))
        self._sizes = np.diff(plan.offsets)
        self._n_rows = n_rows
        self._levels: dict[int, BitArray] = {}
        self._sets: dict[tuple[int, Collection[int] | None], BitArray] = {}

    def find_levels(self, position: int) -> BitArray:
        """Bit sets of all levels of a variable: uint64 of shape (cardinality, n_words)."""
        if position not in self._levels:
            column = self._columns[position]
            codes = np.arange(self._sizes[position], dtype=column.dtype)
            self._levels[position] = _pack(column == codes[:, None])
        return self._levels[position]

    def find_observed(self, position: int) -> BitArray:
        """Bit set of the samples that have a variable: uint64 of shape (n_words,)."""
        key = (position, None)
        if key not in self._sets:
            self._sets[key] = _pack(self._columns[position] >= 0)
        return self._sets[key]

    def find_condition(self, position: int, codes: tuple[int, ...]) -> BitArray:
        """Bit set of the samples in which a variable has one of some codes."""
        key = (position, codes)
        if key not in self._sets:
            if self._sizes[position] <= BIT_LEVELS:
                levels = self.find_levels(position)
                self._sets[key] = np.bitwise_or.reduce(levels[list(codes)], axis=0)
            else:
                # missing, -1, is looked up in the last entry
                is_one = np.zeros(self._sizes[position] + 1, np.bool_)
                is_one[list(codes)] = True
                self._sets[key] = _pack(is_one.take(self._columns[position], mode="wrap"))
        return self._sets[key]

    def find_all(self, given: CodeSets) -> BitArray:
        """Bit set of the samples that meet all conditions; of all samples without any."""
        sets = [self.find_condition(*condition) for condition in given]
        if not sets:
            return _pack(np.arange(self.n_padded) < self._n_rows)
        return np.bitwise_and.reduce(sets, axis=0) if len(sets) > 1 else sets[0]

    def find_cells(self, targets: Sequence[int], shape: Sequence[int], among: BitArray) -> IntArray:
        """Cells, in the flat table, of the samples of a bit set that have all targets: int64, one each."""
        for target in targets:
            among = among & self.find_observed(target)
        rows = np.flatnonzero(np.unpackbits(among.view(np.uint8)).view(np.bool_))
        cells = np.zeros(rows.size, np.int64)
        for target, size in zip(targets, shape, strict=True):
            cells *= size
            cells += self._columns[target][rows]
        return cells


def _pack(is_in: npt.NDArray[np.bool_]) -> BitArray:
    """Bit sets along the last axis, whose length is a multiple of 64."""
    return np.packbits(is_in, axis=-1).view(np.uint64)


def _count_ones(sets: BitArray) -> IntArray:
    """Number of ones along the last axis, of at most `TILE_ROWS` bits: int64."""
    # uint32 is enough, and added up twice as fast
    ones: IntArray = np.bitwise_count(sets).sum(axis=-1, dtype=np.uint32).astype(np.int64)
    return ones


def _add_tile(tile: _Tile, plan: TablePlan, total: IntArray) -> None:
    """Add the samples of a tile to the cells of all tables, in place."""
    for given, tables in plan.by_given.items():
        met = tile.find_all(given)
        n_met = int(_count_ones(met))
        if not n_met:
            continue
        for table in tables:
            cells = total[table.start : table.stop]
            if not table.targets:
                cells += n_met
            elif _choose_bits(tile.n_padded, n_met, cells.size, len(table.targets)):
                sets = met[None]
                for target in table.targets:
                    levels = tile.find_levels(target)
                    sets = (sets[:, None] & levels).reshape(-1, met.size)
                cells += _count_ones(sets)
            else:
                np.add.at(cells, tile.find_cells(table.targets, table.shape, met), 1)


def _choose_bits(n_padded: int, n_met: int, n_cells: int, n_targets: int) -> bool:
    """Whether the cells of a table are counted by bit sets, rather than by taking out the samples that count."""
    by_bits = WORD_NS * n_cells * n_padded / WORD_ROWS
    by_samples = UNPACK_NS * n_padded + FOUND_NS * n_met * (1 + n_targets)
    return n_cells <= BIT_CELLS and by_bits <= by_samples


class _WaitingColumns:
    """Gathers the codes of used variables from blocks until there are enough of them for a tile.

    Blocks of wide data have few rows each, and every table takes some microseconds of each tile, however few they are.
    """

    def __init__(self, plan: TablePlan) -> None:
        self._plan = plan
        self._columns = np.empty((plan.used.size, plan.tile_rows), plan.code_dtype)
        self._n_rows = 0
        n_levels, sizes = int(plan.offsets[-1]), np.diff(plan.offsets)
        first = plan.offsets[plan.used]
        self._column_of_level = np.full(n_levels, -1, np.int32)
        self._code_of_level = np.zeros(n_levels, plan.code_dtype)
        for column, (start, size) in enumerate(zip(first, sizes[plan.used], strict=True)):
            self._column_of_level[start : start + size] = column
            self._code_of_level[start : start + size] = np.arange(size)

    def add(self, block: Block) -> Iterable[_Tile]:
        """Add samples; give each tile that is full, to be counted before the next is asked for."""
        start = 0
        while start < block.n_rows:
            stop = min(block.n_rows, start + self._columns.shape[1] - self._n_rows)
            self._write(block.cut(start, stop))
            start = stop
            if self._n_rows == self._columns.shape[1]:
                yield self.take()

    def take(self) -> _Tile:
        """Give what is there, however little, and begin anew."""
        n_rows, self._n_rows = self._n_rows, 0
        n_padded = -(-n_rows // WORD_ROWS) * WORD_ROWS
        self._columns[:, n_rows:n_padded] = -1
        return _Tile(self._plan, self._columns[:, :n_padded], n_rows)

    def _write(self, block: Block) -> None:
        """Write the codes of samples for which there is room."""
        columns = self._columns[:, self._n_rows : self._n_rows + block.n_rows]
        self._n_rows += block.n_rows
        if isinstance(block, DenseBlock):
            columns[...] = block.codes[:, self._plan.used].T
            return
        columns[...] = -1
        owners = self._column_of_level[block.indices]
        kept = np.flatnonzero(owners >= 0)
        rows = np.repeat(np.arange(block.n_rows), np.diff(block.indptr))[kept]
        columns[owners[kept], rows] = self._code_of_level[block.indices[kept]]
