"""Count the pairs of blocks, each by the kernel that suits it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from pmflib.arrays import IntArray
from pmflib.blocks import Block, SparseBlock, concatenate_blocks
from pmflib.counting.kernel_choice import TILE_ROWS, choose_method, estimate_costs, measure_work

if TYPE_CHECKING:
    from pmflib.kernels.planes import PlaneCounter

JOINED_BYTES = 8 << 20
"""Level indices that wait at most, bytes: two blocks' worth."""


def add_block(block: Block, offsets: IntArray, table: IntArray) -> None:
    """Add the pairs of a block to a table, in place.

    Parameters
    ----------
    block
        Valid samples.
    offsets
        int64 of shape (n_variables + 1,).
    table
        int64 of shape (n_levels, n_levels); its upper triangle grows.

    Notes
    -----
    The kernel is chosen by `pmflib.counting.kernel_choice`. Memory beyond the block: at most 2 KiB a level and half a
    table.
    """
    add_blocks([block], offsets, table)


def add_blocks(blocks: Iterable[Block], offsets: IntArray, table: IntArray) -> None:
    """Add the pairs of several blocks to a table, in place: the same as one by one, and faster.

    Parameters
    ----------
    blocks
        Valid samples; taken one at a time.
    offsets, table
        As for `add_block`.

    Notes
    -----
    Level indices of several blocks, at most ``JOINED_BYTES`` of them, wait for one visit to the table.
    """
    counter: PlaneCounter | None = None
    waiting: list[SparseBlock] = []
    for block in blocks:
        method = choose_method(block, offsets)
        if method == "scatter":
            _scatter(block, offsets, table)
        elif method == "planes":
            counter = counter or _make_counter(offsets)
            counter.add(block.to_codes(offsets), table)
        else:
            sparse = _to_sparse(block, offsets)
            n_rows = sum(part.n_rows for part in waiting) + sparse.n_rows
            n_bytes = sum(part.nbytes for part in waiting) + sparse.nbytes
            if waiting and (n_rows > TILE_ROWS or n_bytes > JOINED_BYTES):
                _add_waiting(waiting, offsets, table)
                waiting = []
            waiting.append(sparse)
    if counter:
        counter.flush(table)
    if waiting:
        _add_waiting(waiting, offsets, table)


def _make_counter(offsets: IntArray) -> PlaneCounter:
    from pmflib.kernels.planes import PlaneCounter  # numba loads on first use

    return PlaneCounter(offsets)


def _scatter(block: Block, offsets: IntArray, table: IntArray) -> None:
    from pmflib.kernels.pair_scatter import add_dense, add_sparse

    if isinstance(block, SparseBlock):
        add_sparse(block.indptr, block.indices, table)
    else:
        add_dense(block.codes, offsets, table)


def _to_sparse(block: Block, offsets: IntArray) -> SparseBlock:
    if isinstance(block, SparseBlock):
        return block
    from pmflib.kernels.held import find_held

    return SparseBlock(*find_held(np.ascontiguousarray(block.codes), offsets))


def _add_waiting(waiting: list[SparseBlock], offsets: IntArray, table: IntArray) -> None:
    joined = waiting[0]
    if len(waiting) > 1:
        joined = concatenate_blocks(waiting, offsets).to_sparse(offsets)
    costs = estimate_costs(measure_work(joined, offsets))
    if costs["scatter"] < costs["tiles"]:
        # too few came to be worth a visit to the whole table
        _scatter(joined, offsets, table)
    else:
        from pmflib.kernels.tiles import add_tiles

        add_tiles(joined.indptr, joined.indices, offsets, table)
