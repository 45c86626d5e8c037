"""Pair and triple counting by scatter: one pass over a block, into a table, tile by tile, or into a cube.

Tile by tile, the levels are split into groups; a pass over the rows adds the pairs of two groups to a tile of 16-bit
counts, which cannot overflow in ``TILE_ROWS`` rows. A narrow table is a single tile. There short rows come in order of
their length, so that the processor foresees where each loop ends: its wrong guesses would cost more than the counting.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pmflib.base.arrays import IntArray
from pmflib.base.compiled.saved_code import compile_kernel


@compile_kernel()
def add_dense(codes, offsets, table):  # type: ignore[no-untyped-def]
    """Add the pairs of a dense block.

    codes: signed integers (n_rows, n_variables), -1 missing. offsets: int64 (n_variables + 1,). table: int64
    (n_levels, n_levels), changed in place: entry (a, b), a <= b, gains the number of rows that hold both levels.
    """
    n_rows, n_variables = codes.shape
    levels = np.empty(
        n_variables, np.uint64
    )  # unsigned: numba then omits the handling of negative positions
    for row in range(n_rows):
        n_observed = 0
        for variable in range(n_variables):
            code = codes[row, variable]
            if code >= 0:
                levels[n_observed] = offsets[variable] + code
                n_observed += 1
        for i in range(n_observed):
            counts = table[levels[i]]
            for j in range(i, n_observed):
                counts[levels[j]] += 1


@compile_kernel()
def add_weighted(codes, weights, offsets, table):  # type: ignore[no-untyped-def]
    """Add the pair counts of a dense block weighted by int64 (n_rows,); other arguments are as for `add_dense`."""
    n_rows, n_variables = codes.shape
    levels = np.empty(n_variables, np.uint64)
    for row in range(n_rows):
        n_observed = 0
        for variable in range(n_variables):
            code = codes[row, variable]
            if code >= 0:
                levels[n_observed] = offsets[variable] + code
                n_observed += 1
        weight = weights[row]
        for i in range(n_observed):
            counts = table[levels[i]]
            for j in range(i, n_observed):
                counts[levels[j]] += weight


@compile_kernel()
def add_sparse(indptr, indices, table):  # type: ignore[no-untyped-def]
    """Add the pair counts of a sparse block.

    indptr: int64 (n_rows + 1,). indices: int32 (n_observed,), level indices, increasing within a row. table: as
    for `add_dense`, to the same result.
    """
    for row in range(indptr.size - 1):
        stop = indptr[row + 1]
        for i in range(indptr[row], stop):
            counts = table[indices[i]]
            for j in range(i, stop):
                counts[indices[j]] += 1


@compile_kernel()
def add_triples(indptr, indices, table):  # type: ignore[no-untyped-def]
    """Add the triple counts of a block.

    indptr: int64 (n_rows + 1,). indices: int32 (n_observed,), level indices, increasing within a row. table: int64
    (n_levels, n_levels, n_levels), changed in place: entry (a, b, c), a < b < c, gains the number of rows that hold all
    three levels, and entry (a, a, a) the number of rows that hold the level.
    """
    for row in range(indptr.size - 1):
        stop = indptr[row + 1]
        for i in range(indptr[row], stop):
            table[indices[i], indices[i], indices[i]] += 1
            plane = table[indices[i]]
            for j in range(i + 1, stop):
                counts = plane[indices[j]]
                for k in range(j + 1, stop):
                    counts[indices[k]] += 1


TILE_ROWS = 65_535
"""Number of rows per pass: the maximum of a 16-bit count."""
TILE_LEVELS = 1024
"""Number of levels on each side of a tile: 2 MiB."""
SHORT_LENGTH = 6
"""Rows up to this length are processed by pairs of positions."""
SHORT_ROW = 8
"""Mean number of level indices per row below which sorting pays."""


@compile_kernel()
def order_rows(indptr, limits, starts):  # type: ignore[no-untyped-def]
    """Sort rows by length.

    indptr: int64 (n_rows + 1,). limits: int64 (longest + 2,), overwritten: rows of a length come at
    ``limits[length]:limits[length + 1]``. starts: uint32 (n_rows,), overwritten: where each row starts, from the first.
    """
    # four interleaved histograms, so that a count need not wait for the previous one
    positions = np.zeros(4 * limits.size, np.int64)
    for row in range(np.uint64(starts.size)):
        length = np.uint64(indptr[row + np.uint64(1)] - indptr[row])
        positions[np.uint64(4) * length + (row & np.uint64(3))] += 1
    total = 0
    for k in range(positions.size):
        if k % 4 == 0:
            limits[k // 4] = total
        size = positions[k]
        positions[k] = total
        total += size
    for row in range(np.uint64(starts.size)):
        start = indptr[row] - indptr[0]
        length = np.uint64(indptr[row + np.uint64(1)] - indptr[row])
        part = np.uint64(4) * length + (row & np.uint64(3))
        starts[np.uint64(positions[part])] = start
        positions[part] += 1


@compile_kernel()
def fill_ordered(indices, limits, starts, tile):  # type: ignore[no-untyped-def]
    """Add the pairs of rows sorted by `order_rows` to a tile of the whole table, uint16 (n_levels, n_levels)."""
    flat = tile.reshape(tile.size)
    width = np.uint64(len(tile))
    for length in range(1, limits.size - 1):
        n_observed = np.uint64(length)
        first, last = np.uint64(limits[length]), np.uint64(limits[length + 1])
        if length <= SHORT_LENGTH:
            # one long loop per pair of positions instead of many short loops
            for i in range(n_observed):
                for j in range(i, n_observed):
                    for row in range(first, last):
                        begin = np.uint64(starts[row])
                        line = np.uint64(indices[begin + i]) * width
                        flat[line + np.uint64(indices[begin + j])] += np.uint16(1)
        else:
            for row in range(first, last):
                begin = np.uint64(starts[row])
                for i in range(begin, begin + n_observed):
                    line = np.uint64(indices[i]) * width
                    for j in range(i, begin + n_observed):
                        flat[line + np.uint64(indices[j])] += np.uint16(1)


@compile_kernel()
def find_group_starts(indptr, indices, edges, group_starts):  # type: ignore[no-untyped-def]
    """Find where each group of levels begins in each row.

    indptr: int64 (n_rows + 1,). edges: int64 (n_groups + 1,), first levels of the groups and n_levels. group_starts:
    uint32 (n_rows, n_groups + 1), overwritten; positions in indices, which begin with the first row's.
    """
    last = edges.size - 2
    for row in range(len(group_starts)):
        position, stop = indptr[row] - indptr[0], indptr[row + 1] - indptr[0]
        for group in range(last):
            group_starts[row, group] = position
            while position < stop and indices[position] < edges[group + 1]:
                position += 1
        group_starts[row, last] = position
        group_starts[row, last + 1] = stop


@compile_kernel()
def fill_tile(indices, group_starts, left, right, edges, tile):  # type: ignore[no-untyped-def]
    """Add the pairs of two groups of levels to a tile; within one group each pair is counted once.

    left, right: numbers of the groups. indices, edges, group_starts: as for `find_group_starts`. tile: uint16
    (n_left, n_right).
    """
    flat = tile.reshape(tile.size)
    width = np.uint64(tile.shape[1])
    corner = np.uint64(edges[left]) * width + np.uint64(edges[right])
    for row in range(len(group_starts)):
        # unsigned positions: otherwise numba handles negative ones, at a third of the speed
        begin, stop = np.uint64(group_starts[row, right]), np.uint64(group_starts[row, right + 1])
        for i in range(np.uint64(group_starts[row, left]), np.uint64(group_starts[row, left + 1])):
            line = np.uint64(indices[i]) * width - corner
            for j in range(i if left == right else begin, stop):
                flat[line + np.uint64(indices[j])] += np.uint16(1)


def add_tiles(indptr: IntArray, indices: IntArray, offsets: IntArray, table: IntArray) -> None:
    """Add the pair counts of a sparse block, with the same result as `pmflib.counts.kernels.scatter.add_sparse`.

    Parameters
    ----------
    indptr
        int64 of shape (n_rows + 1,).
    indices
        int32 of shape (n_observed,), level indices, increasing within a row.
    offsets
        int64 of shape (n_variables + 1,).
    table
        int64 of shape (n_levels, n_levels); its upper triangle is updated.

    Notes
    -----
    Memory: 2 MiB for the tile, plus 4 bytes per row and group of levels for ``TILE_ROWS`` rows.
    """
    n_levels = len(table)
    edges = np.linspace(0, n_levels, -(-n_levels // TILE_LEVELS) + 1).astype(np.int64)
    tile = np.empty(int(np.diff(edges).max(initial=0)) ** 2, np.uint16)
    n_rows = indptr.size - 1
    step = max(1, -(-n_rows // max(1, -(-n_rows // TILE_ROWS))))
    starts = np.empty(step, np.uint32)
    for start in range(0, n_rows, step):
        chunk = indptr[start : start + step + 1]
        inside = indices[chunk[0] : chunk[-1]]
        if edges.size == 2 and inside.size < SHORT_ROW * (chunk.size - 1):
            square = tile.reshape(n_levels, n_levels)
            limits = np.empty(offsets.size + 1, np.int64)
            order_rows(chunk, limits, starts[: chunk.size - 1])
            square[...] = 0
            fill_ordered(inside, limits, starts, square)
            table += square
        else:
            _add_groups(chunk, inside, edges, tile, table)


def _add_groups(
    indptr: IntArray,
    indices: IntArray,
    edges: IntArray,
    tile: npt.NDArray[np.uint16],
    table: IntArray,
) -> None:
    group_starts = np.empty((indptr.size - 1, edges.size), np.uint32)
    find_group_starts(indptr, indices, edges, group_starts)
    groups = [slice(*pair) for pair in pairwise(edges)]
    for left, rows in enumerate(groups):
        for right, columns in enumerate(groups[left:], left):
            shape = rows.stop - rows.start, columns.stop - columns.start
            cells = tile[: shape[0] * shape[1]].reshape(shape)
            cells[...] = 0
            fill_tile(indices, group_starts, left, right, edges, cells)
            table[rows, columns] += cells
