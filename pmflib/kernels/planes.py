"""Pair counting by bit planes: a plane tells, a bit a row, who holds a level; a pair is AND and number of ones.

A variable of I levels has I planes: one for each level but the last, and one of the rows where it is observed
at all. Counts of the last level follow by subtraction, exactly, and where nobody is missing the plane of the
observed is all ones and costs nothing: (I - 1)^2 products for a pair of complete variables instead of I^2.
"""

import numpy as np
from numba import njit

from pmflib.arrays import IntArray
from pmflib.kernels.vectors import (
    LANES,
    STRIP_ROWS,
    STRIP_VARIABLES,
    TILE,
    count_ones,
    count_tile,
    mask_equal,
    mask_least,
    turn_strip,
)

CHUNK_ROWS = 16_384
"""Rows whose planes, 2 KiB each, are in the cache of a core at once."""
CACHED_PLANES = 256
"""Planes on the right side of the products that are visited together: 512 KiB."""
GROUP_ROWS = LANES * STRIP_ROWS
"""Rows packed at once: a plane gains 64 bytes, a line of cache."""


@njit(nogil=True)
def turn_strips(codes, start, stride, n_strips, strips):  # type: ignore[no-untyped-def]
    """Transpose ``n_strips`` times 64 rows of 16 codes, one behind the other in ``strips``."""
    size = STRIP_ROWS * STRIP_VARIABLES
    for k in range(n_strips):
        turn_strip(codes, start + k * STRIP_ROWS * stride, stride, strips[k * size : (k + 1) * size])


@njit(nogil=True)
def pack_variable(strips, position, n_strips, planes, first, last, word):  # type: ignore[no-untyped-def]
    """Write the planes [first, last] of one variable, ``n_strips`` words from ``word`` on."""
    size = STRIP_ROWS * STRIP_VARIABLES
    for plane in range(first, last):
        for k in range(n_strips):
            planes[plane, word + k] = mask_equal(strips, position + k * size, plane - first)
    for k in range(n_strips):
        planes[last, word + k] = mask_least(strips, position + k * size, 0)


@njit(nogil=True)
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
            turn_strips(codes, row * stride + start, stride, n_strips, strips)
            for j in range(min(STRIP_VARIABLES, n_variables - start)):
                first, last = offsets[start + j], offsets[start + j + 1] - 1
                place = word + row // STRIP_ROWS
                pack_variable(strips, j * STRIP_ROWS, n_strips, planes, first, last, place)


@njit(nogil=True)
def count_planes(planes, n_words, ones):  # type: ignore[no-untyped-def]
    """Set ``ones``, int64 (n_levels,), to the number of ones of each plane in its first words."""
    for plane in range(ones.size):
        total = 0
        for word in range(n_words):
            total += count_ones(planes[plane, word])
        ones[plane] = total


@njit(nogil=True)
def multiply_planes(planes, n_words, kept, owners, sums):  # type: ignore[no-untyped-def]
    """Add the number of common ones of each pair of planes, those within a variable left out or not.

    planes: as packed. n_words: multiple of LANES. kept: int64, planes to multiply, increasing, filled up to a
    multiple of TILE with a plane of zeros. owners: int64, variable of each plane. sums: int64 (n_planes, n_planes).
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
                for p in range(TILE):
                    for q in range(TILE):
                        sums[kept[i + p], kept[j + q]] += counts[TILE * p + q]
