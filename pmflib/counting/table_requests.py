"""Tables that are asked for, of some variables under conditions, and what counting them in one pass takes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from pmflib.cluster.memory import MemoryPlan
from pmflib.cluster.task_plans import plan_tasks
from pmflib.core.arrays import IntArray
from pmflib.core.blocks import Block
from pmflib.core.errors import SchemaError
from pmflib.schema import Schema
from pmflib.store.sample_blocks import BLOCK_BYTES, BlockReference

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
"""Nanoseconds of a cell of a table for each word of a bit set, in NumPy, on a core with AVX-512, as all times below."""
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
        rows = np.arange(len(codes))
        # few rows are left to look at once one condition is met
        for position, levels in self.given:
            rows = rows[np.isin(codes[rows, position], levels)]
        for position in self.targets:
            rows = rows[codes[rows, position] >= 0]
        cells = np.zeros(rows.size, np.int64)
        for position, size in zip(self.targets, shape, strict=True):
            cells = cells * size + codes[rows, position]
        return rows, cells

    def to_json(self) -> dict[str, Any]:
        """Targets and conditions as plain JSON types."""
        given = [[position, list(codes)] for position, codes in self.given]
        return {"targets": list(self.targets), "given": given}

    @property
    def digest(self) -> str:
        """SHA-256 of the JSON form, in hexadecimal: equal requests, equal digests, in any version and process."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class _PlannedTable:
    """A table among those of a plan: its targets, its shape, and where its cells are, end to end."""

    targets: tuple[int, ...]
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        return self.start + math.prod(self.shape)

    @property
    def cells(self) -> slice:
        """Where its cells are among those of all tables."""
        return slice(self.start, self.stop)


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

    def find_cells(self, block: Block) -> Iterator[tuple[_PlannedTable, IntArray, IntArray]]:
        """Rows of a block that each table counts, at least one, and the cell of each in the flat table."""
        codes = block.to_codes(self.offsets)
        for request, table in self.tables.items():
            rows, cells = request.find_cells(codes, table.shape)
            if rows.size:
                yield table, rows, cells

    def split(self, total: IntArray, requests: Iterable[TableRequest]) -> list[IntArray]:
        """Tables of requests, which need not be distinct, from the cells of all: arrays of their own."""
        tables = [self.tables[request] for request in requests]
        return [total[table.cells].reshape(table.shape).copy() for table in tables]

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
