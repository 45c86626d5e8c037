"""Tables of some variables among the samples that meet conditions, counted in one pass over blocks of samples.

Many tables are counted at once, from bit sets that they share: a bit for each sample, 64 to a word. A condition is the
OR of the sets of its codes, conditions together are the AND of theirs, and a cell of a table is the number of ones of
the AND of these and of the sets of its levels. Where a table has many cells, or few samples meet the conditions, those
samples are taken out and their cells are added up instead: the same integers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pmflib.cluster.clients import find_memory
from pmflib.core.arrays import IntArray
from pmflib.core.blocks import Block, DenseBlock
from pmflib.counting.table_requests import (
    BIT_CELLS,
    BIT_LEVELS,
    FOUND_NS,
    UNPACK_NS,
    WORD_NS,
    WORD_ROWS,
    CodeSets,
    TablePlan,
    TableRequest,
)
from pmflib.schema import Schema

BitArray: TypeAlias = npt.NDArray[np.uint64]


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
    return plan.split(count_cells(blocks, plan), requests)


def count_cells(blocks: Iterable[Block], plan: TablePlan) -> IntArray:
    """Cells of all tables of a plan, end to end: int64 of shape (n_cells,)."""
    total = np.zeros(plan.n_cells, np.int64)
    waiting = _WaitingColumns(plan)
    for block in blocks:
        for tile in waiting.add(block):
            _add_tile(tile, plan, total)
    _add_tile(waiting.take(), plan, total)
    return total


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
