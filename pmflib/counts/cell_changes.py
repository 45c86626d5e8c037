"""Sparse changes of a count table: the effect of adding or removing a few samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from pmflib.base.arrays import IntArray, list_owners
from pmflib.base.blocks import Block, DenseBlock, SparseBlock
from pmflib.counts.block_counting import add_blocks
from pmflib.counts.selection import narrow_block, narrow_offsets
from pmflib.store.sample_blocks import BlockGroup, iterate_blocks

LISTED_PER_CELL = 16
"""Number of table cells per listed pair of levels at which sorting costs as much as a pass over the table."""


@dataclass(frozen=True, eq=False)
class CellChanges:
    """Changes of the cells in the upper triangle of a count table; an abelian group.

    Parameters
    ----------
    positions
        int64 of shape (n_changed,), increasing: cell indices ``a * n_levels + b``, a <= b.
    changes
        int64 of shape (n_changed,), non-zero.
    """

    positions: IntArray
    changes: IntArray

    @classmethod
    def zero(cls) -> CellChanges:
        """Return no changes: the identity of `merge_changes`."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def from_table(cls, table: IntArray) -> CellChanges:
        """List the non-zero cells of a table (n_levels, n_levels)."""
        positions = np.flatnonzero(table)
        return cls(positions, table.reshape(-1)[positions])

    @property
    def n_cells(self) -> int:
        """Return the number of cells that change."""
        return self.positions.size

    def add_to(self, table: IntArray) -> bool:
        """Change a contiguous table (n_levels, n_levels) in place; return whether no cell became negative."""
        flat = table.reshape(-1)
        flat[self.positions] += self.changes
        return not (flat[self.positions] < 0).any()

    def sum_levels(self, n_levels: int) -> IntArray:
        """Return the changes of single counts (the diagonal): int64 of shape (n_levels,)."""
        first, second = np.divmod(self.positions, n_levels)
        on_diagonal = first == second
        singles = np.zeros(n_levels, np.int64)
        singles[first[on_diagonal]] = self.changes[on_diagonal]
        return singles

    def sum_pairs(self, offsets: IntArray) -> IntArray:
        """Sum the changes for each pair of variables: int64 (n_variables, n_variables), upper triangle.

        Parameters
        ----------
        offsets
            int64 of shape (n_variables + 1,).
        """
        owners, n_variables = list_owners(offsets), offsets.size - 1
        first, second = np.divmod(self.positions, int(offsets[-1]))
        pairs = np.zeros((n_variables, n_variables), np.int64)
        np.add.at(pairs, (owners[first], owners[second]), self.changes)
        return pairs


def merge_changes(parts: Sequence[CellChanges]) -> CellChanges:
    """Sum changes, at least one, without modifying them."""
    if len(parts) == 1:
        return parts[0]
    return _add_up(
        np.concatenate([part.positions for part in parts]),
        np.concatenate([part.changes for part in parts]),
    )


def count_changes(
    group: tuple[int, BlockGroup], offsets: IntArray, counted: IntArray | None = None
) -> CellChanges:
    """Count the pairs of samples that are added or removed.

    Parameters
    ----------
    group
        1 or -1, for samples that are added or removed, with their blocks.
    offsets
        int64 of shape (n_variables + 1,).
    counted
        int64, positions of the variables whose pairs are counted; None for all.

    Notes
    -----
    The pairs of a few samples are listed and sorted, which takes time and memory proportional to their number; those of
    many samples are counted in a table. Both give the same changes.
    """
    sign = group[0]
    blocks = (narrow_block(block, offsets, counted) for block in iterate_blocks(group[1]))
    own = narrow_offsets(offsets, counted)
    n_levels = int(own[-1])
    few: list[Block] = []
    n_pairs = 0
    for block in blocks:
        few.append(block)
        n_pairs += _count_pairs(block)
        if n_pairs * LISTED_PER_CELL > n_levels**2:
            table = np.zeros((n_levels, n_levels), np.int64)
            add_blocks(chain(few, blocks), own, table)
            found = CellChanges.from_table(table)
            return CellChanges(found.positions, sign * found.changes)
    sparse = [block.to_sparse(own) for block in few]
    nothing = np.empty(0, np.int64)
    listed = [list_pairs(block, n_levels) for block in sparse]
    positions = np.concatenate([nothing, *(places for places, _ in listed)])
    times = [
        np.ones(rows.size, np.int64)
        if block.weights is None
        else block.weights[rows].astype(np.int64)
        for block, (_, rows) in zip(sparse, listed, strict=True)
    ]
    return _add_up(positions, sign * np.concatenate([nothing, *times]))


def list_pairs(block: SparseBlock, n_levels: int) -> tuple[IntArray, IntArray]:
    """List (cell, row) for every pair of observed levels, diagonal included.

    Two int64 arrays of equal length, unordered: cell indices and row numbers.
    """
    lengths = np.diff(block.indptr)
    ends = np.repeat(block.indptr[1:], lengths)
    owners = np.repeat(np.arange(block.n_rows), lengths)
    levels = block.indices.astype(np.int64)
    left = np.arange(levels.size)
    found, rows = [], []
    step = 0
    # pair each level with itself, then with the next one in its row, then with the one after that
    while left.size:
        found.append(levels[left] * n_levels + levels[left + step])
        rows.append(owners[left])
        step += 1
        left = left[left + step < ends[left]]
    nothing = np.empty(0, np.int64)
    return np.concatenate([nothing, *found]), np.concatenate([nothing, *rows])


def _count_pairs(block: Block) -> int:
    """Return the number of pairs that `list_pairs` would list."""
    if isinstance(block, DenseBlock):
        lengths = np.count_nonzero(block.codes >= 0, axis=1)
    else:
        lengths = np.diff(block.indptr)
    return int((lengths * (lengths + 1) // 2).sum())


def _add_up(positions: IntArray, changes: IntArray) -> CellChanges:
    """Sum the changes at equal positions, which may be unordered."""
    # the parts are sorted: a stable sort merges such runs
    order = np.argsort(positions, kind="stable")
    positions = positions[order]
    edges = np.flatnonzero(np.append(True, positions[1:] != positions[:-1])[: positions.size])
    if not edges.size:
        return CellChanges.zero()
    sums = np.add.reduceat(changes[order], edges)
    kept = sums != 0
    return CellChanges(positions[edges][kept], sums[kept])
