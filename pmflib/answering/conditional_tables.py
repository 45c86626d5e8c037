"""Tables of some variables among the samples that meet conditions.

All tables are counted in one pass. A condition is evaluated once for all tables that share it, and sums have an axis of
weights: ones, the weights of the samples, their squares, or the weights of replicates.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pmflib.base.arrays import IntArray
from pmflib.base.blocks import Block, DenseBlock
from pmflib.base.constraints import Interval, check, check_distinct
from pmflib.base.errors import SchemaError
from pmflib.base.json_records import JsonRecord
from pmflib.cluster.clients import find_memory
from pmflib.cluster.memory import MemoryPlan
from pmflib.cluster.task_plans import plan_tasks
from pmflib.schema import Schema
from pmflib.store.sample_blocks import (
    BLOCK_BYTES,
    MAX_BLOCK_ROWS,
    BlockReference,
)

CodeSets: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]
"""Conditions: pairs of a variable's position and its allowed codes."""

READ_BYTES = 650e6
"""Bytes in memory that a core decompresses per second. A code is counted about as fast as a byte is decompressed."""
MOST_JOINED = np.iinfo(np.int16).max
"""Maximum number of cells whose numbers are held as int16."""


@dataclass(frozen=True)
class TableRequest(JsonRecord):
    """A table to count; requests with the same conditions in another order are equal.

    Parameters
    ----------
    targets
        Positions of the variables of the axes of the table, in order; an empty tuple requests a single number.
    given
        Position of each variable of a condition and its allowed codes, at least one; sorted, each code once. A sample
        that lacks the variable does not meet the condition.
    n_given
        Number of leading targets that are conditions as well, each level of which is a table of its own: weighted
        counts have an effective number of samples for each combination of their levels, in place of one for all.

    Raises
    ------
    SchemaError
        If a position is repeated among the targets or among the conditions, or a condition has no code.
    """

    targets: tuple[int, ...]
    given: CodeSets = ()
    n_given: int = 0

    def __post_init__(self) -> None:
        targets = tuple(map(int, self.targets))
        given = tuple(
            sorted((int(j), tuple(sorted({*map(int, codes)}))) for j, codes in self.given)
        )
        check_distinct(targets, "targets are positions")
        check_distinct([position for position, _ in given], "given has positions")
        if empty := [position for position, codes in given if not codes]:
            raise SchemaError(
                f"given[{empty[0]}] is empty; pass at least one code, or omit this condition"
            )
        object.__setattr__(self, "targets", targets)
        object.__setattr__(self, "given", given)

    @property
    def positions(self) -> set[int]:
        """Return the positions of all variables used by the table."""
        return {*self.targets, *(position for position, _ in self.given)}

    @property
    def digest(self) -> str:
        """SHA-256 of the JSON form, in hexadecimal: the same for equal requests in any version and process."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class PlannedTable:
    """Shape of a table, and the position of its first cell in the concatenation of all tables."""

    targets: tuple[int, ...]
    shape: tuple[int, ...]
    start: int

    @property
    def n_cells(self) -> int:
        """Return the number of cells."""
        return math.prod(self.shape)

    @property
    def cells(self) -> slice:
        """Slice of the cells in the concatenation of all tables."""
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
        Number of cells of all tables.
    """

    schema: Schema
    tables: dict[TableRequest, PlannedTable]
    n_cells: int

    @classmethod
    def make(cls, schema: Schema, requests: Iterable[TableRequest]) -> TablePlan:
        """Check requests against a schema and assign cells to them.

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
        """Sorted positions of the variables that any table depends on: int64 of shape (n_used,)."""
        return np.array(sorted(set().union(*(each.positions for each in self.tables))), np.int64)

    @cached_property
    def by_conditions(self) -> dict[CodeSets, list[PlannedTable]]:
        """Group the tables by their conditions."""
        groups: dict[CodeSets, list[PlannedTable]] = {}
        for request, table in self.tables.items():
            groups.setdefault(request.given, []).append(table)
        return groups

    def find_cells(self, block: Block) -> Iterator[tuple[PlannedTable, IntArray, IntArray]]:
        """Iterate over tables with the rows of a block that they count, at least one, and the flat cells of these."""
        for table, taken, is_met in self._iterate_tables(block):
            rows, cells = _find_cells(table, taken, is_met)
            if rows.size:
                yield table, rows, cells

    def add_rows(self, block: Block, total: IntArray) -> None:
        """Add the number of rows in each cell to int64 of shape (n_cells,), in place."""
        for table, taken, is_met in self._iterate_tables(block):
            # cell 0 of each axis takes the rows that do not count, so that none has to be removed
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
        """Iterate over tables, codes of their targets, (n_targets, n_rows), and whether rows meet the conditions."""
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
        """Read the codes of the variables in use, from 1, 0 missing: int16 of shape (n_used, n_rows)."""
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
        """Split the cells of all tables into new arrays, one for each request; requests may repeat."""
        tables = [self.tables[request] for request in requests]
        return [total[table.cells].reshape(table.shape).copy() for table in tables]

    def plan_seconds(self, block: BlockReference) -> float:
        """Estimate the seconds that a block takes one core, if all samples met the conditions."""
        n_steps = sum(1 + len(each.targets) + len(each.given) for each in self.tables)
        return (block.nbytes + n_steps * block.n_rows) / READ_BYTES

    def plan_memory(self, n_threads: int, n_weights: int = 1) -> MemoryPlan:
        """Memory of counting with some number of weights: independent of the number of samples."""
        table = 8 * n_weights * self.n_cells
        n_waiting = plan_tasks([1] * n_threads, n_threads).n_waiting
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
    """Find the rows that meet the conditions and have all targets, and the flat cell of each."""
    rows = np.flatnonzero(is_met & (taken > 0).all(axis=0))
    cells = np.zeros(rows.size, np.int64)
    for size, codes in zip(table.shape, taken, strict=True):
        cells *= size
        cells += codes[rows]
        cells -= 1
    return rows, cells


def _count_numbers(numbers: IntArray, n_numbers: int) -> IntArray:
    """Count numbers in [0, n_numbers), two rows at a time if pairs fit into int16."""
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
        check(Interval(0, n_variables - 1), SchemaError, position=position)
    for position, codes in request.given:
        variable = schema[position]
        wanted = Interval(0, variable.cardinality - 1, hint="and missing is none of them")
        for code in codes:
            check(wanted, SchemaError, **{f"given[{position}]": code})


def count_tables(
    blocks: Iterable[Block], schema: Schema, requests: Sequence[TableRequest]
) -> list[IntArray]:
    """Count tables over blocks of samples in one pass.

    Parameters
    ----------
    blocks
        Valid samples of any size, dense or sparse, taken one block at a time. Each row counts once, without weights.
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
    """Add samples with any number of weights to the cells of all tables, in place.

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
