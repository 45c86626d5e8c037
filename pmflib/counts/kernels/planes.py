"""Pair counting by bit planes: one bit per row and level; pair counts are popcounts of ANDs.

A variable with I levels has I planes: one for each level except the last, and one that marks rows in which the variable
is observed. Counts of the last level follow exactly by subtraction. If a variable has no missing cells, its "observed"
plane is all ones and costs nothing, so a pair of complete variables needs (I - 1)^2 products instead of I^2.
"""

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.base.compiled.saved_code import compile_kernel
from pmflib.base.compiled.vectors import (
    LANES,
    STRIP_ROWS,
    STRIP_VARIABLES,
    TILE,
    count_ones,
    count_tile,
    mask_equal,
    mask_least,
    transpose_strip,
)

CHUNK_ROWS = 16_384
"""Number of rows whose planes, 2 KiB each, fit in a core's cache together."""
MAX_ROWS = 1 << 28
"""Number of rows that 32-bit sums can count, with room for twice a sum."""
CACHED_PLANES = 256
"""Number of planes on the right side of the products that are processed together: 512 KiB."""
GROUP_ROWS = LANES * STRIP_ROWS
"""Number of rows packed at once: 64 bytes per plane, one cache line."""


@compile_kernel()
def transpose_strips(codes, start, stride, n_strips, strips):  # type: ignore[no-untyped-def]
    """Transpose ``n_strips`` times 64 rows of 16 codes, stored consecutively in ``strips``."""
    size = STRIP_ROWS * STRIP_VARIABLES
    for k in range(n_strips):
        transpose_strip(
            codes, start + k * STRIP_ROWS * stride, stride, strips[k * size : (k + 1) * size]
        )


@compile_kernel()
def pack_variable(strips, position, n_strips, planes, first, last, word):  # type: ignore[no-untyped-def]
    """Write the planes [first, last] of one variable, ``n_strips`` words from ``word`` on."""
    size = STRIP_ROWS * STRIP_VARIABLES
    for plane in range(first, last):
        for k in range(n_strips):
            planes[plane, word + k] = mask_equal(strips, position + k * size, plane - first)
    for k in range(n_strips):
        planes[last, word + k] = mask_least(strips, position + k * size, 0)


@compile_kernel()
def pack_planes(codes, n_rows, stride, offsets, planes, word):  # type: ignore[no-untyped-def]
    """Turn row-major codes into bit planes.

    codes: int8 or int16, flat, -1 missing: row r starts at ``stride * r``, and whole strips can be read: all rows of
    the last 64, and 16 codes from each variable whose number is a multiple of 16. offsets: int64 (n_variables + 1,).
    planes: uint64 (n_planes, n_words), written from ``word`` on, 64 rows to a word.
    """
    n_variables = offsets.size - 1
    strips = np.empty(GROUP_ROWS * STRIP_VARIABLES, codes.dtype)
    for row in range(0, n_rows, GROUP_ROWS):
        n_strips = (min(GROUP_ROWS, n_rows - row) + STRIP_ROWS - 1) // STRIP_ROWS
        for start in range(0, n_variables, STRIP_VARIABLES):
            transpose_strips(codes, row * stride + start, stride, n_strips, strips)
            for j in range(min(STRIP_VARIABLES, n_variables - start)):
                first, last = offsets[start + j], offsets[start + j + 1] - 1
                position = word + row // STRIP_ROWS
                pack_variable(strips, j * STRIP_ROWS, n_strips, planes, first, last, position)


@compile_kernel()
def add_margins(planes, n_words, n_rows, ones, sums):  # type: ignore[no-untyped-def]
    """Count the ones of each plane, and add the products with all-ones planes, which need no multiplication.

    planes: as packed, n_words of them in use. ones: int64 (n_levels,), overwritten. sums: as for `multiply_planes`.
    """
    for plane in range(ones.size):
        total = 0
        for word in range(n_words):
            total += count_ones(planes[plane, word])
        ones[plane] = total
    for full in range(ones.size):
        if ones[full] == n_rows:
            for plane in range(full):
                sums[plane, full] += ones[plane]
            for plane in range(full + 1, ones.size):
                if ones[plane] < n_rows:
                    sums[full, plane] += ones[plane]


@compile_kernel()
def multiply_planes(planes, n_words, kept, n_kept, owners, sums):  # type: ignore[no-untyped-def]
    """Add the number of common ones of each pair of planes; pairs within a variable are undefined.

    planes: as packed. n_words: multiple of LANES. kept: int64, n_kept increasing plane indices, padded to a multiple of
    TILE with any index. owners: int64 (n_planes,), variable of each plane. sums: int32 or int64 (n_planes, n_planes),
    upper triangle.
    """
    flat = planes.reshape(planes.size)
    starts = kept * planes.shape[1]
    counts = np.empty(TILE * TILE, np.int64)
    for block in range(0, kept.size, CACHED_PLANES):
        stop = min(block + CACHED_PLANES, kept.size)
        for i in range(0, stop, TILE):
            for j in range(max(i, block), stop, TILE):
                if owners[kept[i]] == owners[kept[j + TILE - 1]]:
                    continue
                count_tile(flat, starts[i : i + TILE], starts[j : j + TILE], 0, n_words, counts)
                if j + TILE <= n_kept:
                    for p in range(TILE):
                        for q in range(TILE):
                            sums[kept[i + p], kept[j + q]] += counts[TILE * p + q]
                else:
                    for p in range(min(TILE, n_kept - i)):
                        for q in range(n_kept - j):
                            sums[kept[i + p], kept[j + q]] += counts[TILE * p + q]


@compile_kernel()
def keep_planes(ones, n_rows, kept):  # type: ignore[no-untyped-def]
    """List the planes that are neither all zeros nor all ones; returns their number.

    ones: from `add_margins`, for n_rows rows. kept: int64 (n_levels + TILE,), padded with the index of the zero plane,
    which follows the others.
    """
    n_kept = 0
    for plane in range(ones.size):
        if 0 < ones[plane] < n_rows:
            kept[n_kept] = plane
            n_kept += 1
    kept[n_kept : n_kept + TILE] = ones.size
    return n_kept


@compile_kernel()
def add_codes(codes, n_safe, stride, edge, n_edge, width, offsets, planes, owners, singles, sums):  # type: ignore[no-untyped-def]
    """Count rows of codes in chunks that fit the planes, in one call because a call costs as much as a hundred rows.

    codes, stride: as for `pack_planes`; n_safe rows, whole groups of GROUP_ROWS, can be read. edge, width: the same for
    the n_edge rows that follow. planes: uint64 (n_levels + 1, n_words), the last zeros, the others overwritten; n_words
    is a multiple of LANES. owners, sums: as for `multiply_planes`. singles: int64 (n_levels,), gain the ones.
    """
    n_levels, chunk_rows = singles.size, planes.shape[1] * STRIP_ROWS
    ones, kept = np.empty(n_levels, np.int64), np.empty(n_levels + TILE, np.int64)
    for start in range(0, n_safe + n_edge, chunk_rows):
        stop = min(start + chunk_rows, n_safe + n_edge)
        middle = min(max(start, n_safe), stop)
        if start < middle:
            word = np.int64(0)  # a literal would compile a second version
            pack_planes(codes[start * stride :], middle - start, stride, offsets, planes, word)
        if middle < stop:
            rest, word = edge[(middle - n_safe) * width :], (middle - start) // STRIP_ROWS
            # whole groups, so that no word of the previous chunk remains
            n_padded = (stop - middle + GROUP_ROWS - 1) // GROUP_ROWS * GROUP_ROWS
            pack_planes(rest, n_padded, width, offsets, planes, word)
        n_rows = stop - start
        n_words = (n_rows + GROUP_ROWS - 1) // GROUP_ROWS * LANES
        add_margins(planes, n_words, n_rows, ones, sums)
        for plane in range(n_levels):
            singles[plane] += ones[plane]
        n_kept = keep_planes(ones, n_rows, kept)
        n_filled = (n_kept + TILE - 1) // TILE * TILE
        multiply_planes(planes, n_words, kept[:n_filled], n_kept, owners, sums)


def choose_chunk_rows(n_levels: int) -> int:
    """Return the number of rows packed before their planes are multiplied; more if there are few planes."""
    return CHUNK_ROWS * max(1, min(4, CACHED_PLANES // n_levels))


class PlaneCounter:
    """Adds pair counts of dense blocks, with the same result as `pmflib.counts.kernels.scatter.add_dense`.

    Parameters
    ----------
    offsets
        int64 of shape (n_variables + 1,); at least one variable.

    Notes
    -----
    Memory: 2 KiB per level for the planes, plus half the size of the table for the sums; independent of the number of
    rows.
    """

    def __init__(self, offsets: IntArray) -> None:
        n_levels = int(offsets[-1])
        self.offsets = offsets
        self.n_rows = 0
        n_words = choose_chunk_rows(n_levels) // STRIP_ROWS
        self._planes = np.zeros((n_levels + 1, n_words), np.uint64)
        self._owners = np.repeat(np.arange(offsets.size), np.append(np.diff(offsets), 1))
        self._sums = np.zeros((n_levels + 1, n_levels + 1), np.int32)
        self._singles = np.zeros(n_levels, np.int64)

    def add(self, codes: IntArray, table: IntArray) -> None:
        """Count a block into the internal sums, which are flushed to the table before they overflow.

        Parameters
        ----------
        codes
            int8 or int16 of shape (n_rows, n_variables); -1 is missing.
        table
            int64 of shape (n_levels, n_levels); its upper triangle is updated now or in `flush`.
        """
        codes = np.ascontiguousarray(codes)
        for start in range(0, len(codes), MAX_ROWS):
            part = codes[start : start + MAX_ROWS]
            if self.n_rows + len(part) > MAX_ROWS:
                self.flush(table)
            self.n_rows += len(part)
            self._add(part)

    def _add(self, codes: IntArray) -> None:
        """Count rows, copying the last ones because vectors read past the end of a row."""
        n_rows, n_variables = codes.shape
        width = -(-n_variables // STRIP_VARIABLES) * STRIP_VARIABLES
        n_safe = max(0, (codes.size - width) // n_variables + 1)
        n_safe = min(n_rows, n_safe) // GROUP_ROWS * GROUP_ROWS
        n_edge = n_rows - n_safe
        edge = np.full((-(-n_edge // GROUP_ROWS) * GROUP_ROWS, width), -1, codes.dtype)
        edge[:n_edge, :n_variables] = codes[n_safe:]
        parts = codes.reshape(-1), n_safe, n_variables, edge.reshape(-1), n_edge, width
        add_codes(*parts, self.offsets, self._planes, self._owners, self._singles, self._sums)

    def flush(self, table: IntArray) -> None:
        """Convert counts of "observed" to counts of the last level, and add everything to the table."""
        sums, singles = self._sums[:-1, :-1], self._singles
        firsts, lasts = self.offsets[:-1], self.offsets[1:] - 1
        # observed - others = 2 observed - (others + observed)
        sums[:, lasts] = 2 * sums[:, lasts] - np.add.reduceat(sums, firsts, axis=1)
        sums[lasts] = 2 * sums[lasts] - np.add.reduceat(sums, firsts, axis=0)
        singles[lasts] = 2 * singles[lasts] - np.add.reduceat(singles, firsts)
        table[np.diag_indices_from(table)] += singles
        owners = self._owners[:-1]
        for start in range(0, len(sums), CACHED_PLANES):
            rows = slice(start, start + CACHED_PLANES)
            sums[rows] *= owners[rows, None] < owners  # pairs within a variable: see singles
            table[rows] += sums[rows]
        self.n_rows = 0
        self._sums[...] = 0
        singles[...] = 0


def add_planes(codes: IntArray, offsets: IntArray, table: IntArray) -> None:
    """Add the pair counts of one dense block to a table, int64 of shape (n_levels, n_levels); see `PlaneCounter`."""
    counter = PlaneCounter(offsets)
    counter.add(codes, table)
    counter.flush(table)
