"""Pair counting by bit planes in one pass, assigning rows to folds and checking codes without copies.

Rows of a fold are not contiguous. They are listed until there are enough of them to pack into bit planes of the fold,
while the codes are still in the core's cache.
"""

from collections.abc import Iterator

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.base.compiled.saved_code import compile_kernel
from pmflib.base.compiled.vectors import (
    LANES,
    STRIP_ROWS,
    STRIP_VARIABLES,
    TILE,
    mask_equal,
    mask_least,
    transpose_scattered,
)
from pmflib.counts.kernels.planes import GROUP_ROWS, add_margins, keep_planes, multiply_planes

FOLD_ROWS = 8192
"""Maximum number of rows of a fold packed before their planes are multiplied: 1 KiB per plane."""
TABLES_BYTES = 64 << 20
"""Maximum size in bytes of the fold tables that are filled in one pass over the codes; larger tables need more
passes.
"""
PASS_ROWS = 2048
"""Number of rows whose folds are computed at once."""
BLOCK_ROWS = 65_536
"""Number of rows converted at a time to the integer type of the vector code."""


@compile_kernel()
def find_folds(first_row, n_folds, folds):  # type: ignore[no-untyped-def]
    """Fill the folds of rows from ``first_row`` on, int64, as `pmflib.base.hashing.assign_folds` does with seed 0."""
    modulus = np.uint64(n_folds)
    is_power = modulus & (modulus - np.uint64(1)) == 0
    for k in range(folds.size):
        z = np.uint64(first_row + k) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
        folds[k] = np.int64(z & (modulus - np.uint64(1))) if is_power else np.int64(z % modulus)


@compile_kernel()
def pack_rows(codes, positions, n_rows, offsets, strips, planes, word):  # type: ignore[no-untyped-def]
    """Convert listed rows to bit planes; returns non-zero bits if a code is outside its variable's range.

    codes: int8 or int16, flat; 16 of them can be read from each row's positions of variables 0, 16, ... on. positions:
    int64, where n_rows rows begin, at most GROUP_ROWS; changed beyond them. strips: work space of GROUP_ROWS rows.
    planes: uint64 (n_planes, n_words), written from ``word`` on, zeros where the last 64 rows end.
    """
    size = STRIP_ROWS * STRIP_VARIABLES
    n_variables = offsets.size - 1
    n_strips = (n_rows + STRIP_ROWS - 1) // STRIP_ROWS
    positions[n_rows : n_strips * STRIP_ROWS] = positions[0]
    outside = np.uint64(0)
    for start in range(0, n_variables, STRIP_VARIABLES):
        n_here = min(STRIP_VARIABLES, n_variables - start)
        for k in range(n_strips):
            strip = strips[k * size : (k + 1) * size]
            transpose_scattered(
                codes, positions[k * STRIP_ROWS : (k + 1) * STRIP_ROWS], start, strip
            )
            if (k + 1) * STRIP_ROWS > n_rows:
                for j in range(n_here):
                    strip[j * STRIP_ROWS + n_rows - k * STRIP_ROWS : (j + 1) * STRIP_ROWS] = -1
        for j in range(n_here):
            first, last = offsets[start + j], offsets[start + j + 1] - 1
            for plane in range(first, last):
                for k in range(n_strips):
                    position = j * STRIP_ROWS + k * size
                    planes[plane, word + k] = mask_equal(strips, position, plane - first)
            for k in range(n_strips):
                position = j * STRIP_ROWS + k * size
                planes[last, word + k] = mask_least(strips, position, 0)
                outside |= mask_least(strips, position, last - first + 1)
                outside |= ~mask_least(strips, position, -1)
    return outside


@compile_kernel()
def multiply_fold(planes, n_words, n_rows, owners, ones, kept, singles, table):  # type: ignore[no-untyped-def]
    """Add the pair counts of a fold's planes to its table, in which the last levels stand for "observed"."""
    n_filled = (n_words + LANES - 1) // LANES * LANES
    planes[:, n_words:n_filled] = 0
    add_margins(planes, n_filled, n_rows, ones, table)
    for plane in range(ones.size):
        singles[plane] += ones[plane]
    n_kept = keep_planes(ones, n_rows, kept)
    n_listed = (n_kept + TILE - 1) // TILE * TILE
    multiply_planes(planes, n_filled, kept[:n_listed], n_kept, owners, table)


@compile_kernel()
def derive_last(offsets, singles, table):  # type: ignore[no-untyped-def]
    """Convert counts of "observed" to counts of the last level, in place, and fill each variable's own block."""
    n_variables, n_levels = offsets.size - 1, singles.size
    for variable in range(n_variables):
        first, last = offsets[variable], offsets[variable + 1] - 1
        for level in range(first, last):
            singles[last] -= singles[level]
        for row in range(first, last + 1):
            for other in range(variable + 1, n_variables):
                end = offsets[other + 1] - 1
                total = table[row, end]
                for column in range(offsets[other], end):
                    total -= table[row, column]
                table[row, end] = total
        for row in range(first, last):
            for column in range(last + 1, n_levels):
                table[last, column] -= table[row, column]
        for row in range(first, last + 1):
            table[row, : last + 1] = 0
            table[row, row] = singles[row]


@compile_kernel()
def add_row(codes, position, offsets, table):  # type: ignore[no-untyped-def]
    """Count one row without vectors; returns whether a code is outside its variable's range."""
    n_variables = offsets.size - 1
    for i in range(n_variables):
        code = np.int64(codes[position + i])
        if code < -1 or code >= offsets[i + 1] - offsets[i]:
            return True
        if code >= 0:
            for j in range(i, n_variables):
                other = np.int64(codes[position + j])
                if 0 <= other < offsets[j + 1] - offsets[j]:
                    table[offsets[i] + code, offsets[j] + other] += 1
    return False


@compile_kernel()
def add_folds(  # type: ignore[no-untyped-def]
    codes,
    n_rows,
    n_safe,
    first_row,
    n_folds,
    low,
    ends,
    offsets,
    owners,
    planes,
    singles,
    tables,
    n_assigned,
):
    """Count rows into the tables of their folds; stops at a code out of range. Returns whether all codes are in range.

    codes: int8 or int16, flat, row after row, -1 missing; of the first n_safe of n_rows rows, 16 codes can be read from
    each variable whose number is a multiple of 16. first_row: number of the first row. low: first of the folds that
    tables, int64 (n_here, n_levels, n_levels), belong to; their upper triangles hold "observed" in place of the last
    levels until the last call, which has ``ends`` true. owners: as for `multiply_planes`. planes: uint64 (n_here,
    n_levels + 1, n_words), overwritten; n_words is a multiple of LANES. singles: int64 (n_here, n_levels), gain the
    ones of the planes. n_assigned: int64 (n_here,), gains the rows.
    """
    n_here, n_levels, n_variables = tables.shape[0], owners.size - 1, offsets.size - 1
    positions = np.empty((n_here, GROUP_ROWS), np.int64)
    strips = np.empty(GROUP_ROWS * STRIP_VARIABLES, codes.dtype)
    n_listed, n_words, n_packed = np.zeros((3, n_here), np.int64)
    ones, kept = np.empty(n_levels, np.int64), np.empty(n_levels + TILE, np.int64)
    folds = np.zeros(PASS_ROWS, np.int64)
    outside = np.uint64(0)
    for start in range(0, n_safe, PASS_ROWS):
        stop = min(start + PASS_ROWS, n_safe)
        if n_folds > 1:
            find_folds(first_row + start, n_folds, folds[: stop - start])
        for row in range(start, stop):
            fold = folds[row - start] - low
            if fold < 0 or fold >= n_here:
                continue
            positions[fold, n_listed[fold]] = row * n_variables
            n_listed[fold] += 1
            if n_listed[fold] == GROUP_ROWS:
                outside |= pack_rows(
                    codes, positions[fold], GROUP_ROWS, offsets, strips, planes[fold], n_words[fold]
                )
                n_listed[fold] = 0
                n_words[fold] += LANES
                n_packed[fold] += GROUP_ROWS
                if n_words[fold] == planes.shape[2]:
                    if outside:
                        return False
                    multiply_fold(
                        planes[fold], n_words[fold], n_packed[fold], owners, ones, kept, singles[fold], tables[fold]
                    )  # fmt: skip
                    n_assigned[fold] += n_packed[fold]
                    n_words[fold] = n_packed[fold] = 0
    for fold in range(n_here):
        n_rest = n_listed[fold]
        if n_rest:
            outside |= pack_rows(
                codes, positions[fold], n_rest, offsets, strips, planes[fold], n_words[fold]
            )
            n_words[fold] += (n_rest + STRIP_ROWS - 1) // STRIP_ROWS
            n_packed[fold] += n_rest
        if outside:
            return False
        if n_packed[fold]:
            multiply_fold(
                planes[fold], n_words[fold], n_packed[fold], owners, ones, kept, singles[fold], tables[fold]
            )  # fmt: skip
            n_assigned[fold] += n_packed[fold]
        if ends:
            derive_last(offsets, singles[fold], tables[fold])
    for row in range(n_safe, n_rows):
        if n_folds > 1:
            find_folds(first_row + row, n_folds, folds[:1])
        fold = folds[0] - low
        if 0 <= fold < n_here:
            if add_row(codes, row * n_variables, offsets, tables[fold]):
                return False
            n_assigned[fold] += 1
    return True


def count_folds(codes: IntArray, offsets: IntArray, tables: IntArray, n_rows: IntArray) -> bool:
    """Count pairs into one table per fold, with folds assigned by `pmflib.base.hashing.assign_folds`.

    Parameters
    ----------
    codes
        Integers of shape (n_rows, n_variables), with at least one variable; -1 is missing. Contiguous int8 and int16
        codes are not copied.
    offsets
        int64 of shape (n_variables + 1,).
    tables
        int64 of shape (n_folds, n_levels, n_levels), zeros; upper triangles are filled.
    n_rows
        int64 of shape (n_folds,), zeros; filled with the number of rows in each fold.

    Returns
    -------
    Whether all codes are in range; if not, tables and n_rows are unusable.

    Notes
    -----
    Memory: 1 KiB per level for each fold filled in the same pass; independent of the number of rows.
    """
    n_folds, n_levels = tables.shape[:2]
    n_here = max(1, min(n_folds, TABLES_BYTES // tables[0].nbytes))
    # folds with few rows have short planes
    n_groups = -(-len(codes) // (n_folds * GROUP_ROWS)) + 1
    n_words = min(FOLD_ROWS // STRIP_ROWS, n_groups * LANES)
    planes = np.zeros((n_here, n_levels + 1, n_words), np.uint64)
    owners = np.repeat(np.arange(offsets.size), np.append(np.diff(offsets), 1))
    for low in range(0, n_folds, n_here):
        mine = slice(low, low + n_here)
        singles = np.zeros((len(n_rows[mine]), n_levels), np.int64)
        for first_row, block, n_block, n_safe in _iterate_blocks(codes, offsets):
            where = (
                first_row,
                n_folds,
                low,
                first_row + n_block == len(codes),
                offsets,
                owners,
                planes,
            )
            if not add_folds(block, n_block, n_safe, *where, singles, tables[mine], n_rows[mine]):
                return False
    return True


def _iterate_blocks(codes: IntArray, offsets: IntArray) -> Iterator[tuple[int, IntArray, int, int]]:
    """Yield contiguous int8 or int16 rows: number of the first row, flat codes, rows, rows readable by vectors."""
    n_variables = codes.shape[1]
    width = -(-n_variables // STRIP_VARIABLES) * STRIP_VARIABLES
    dtype = np.dtype(np.int8 if np.diff(offsets).max() <= 127 else np.int16)
    if codes.dtype in (dtype, np.int16) and codes.flags.c_contiguous:
        # vectors read past the end of a row
        n_safe = max(0, (codes.size - width) // n_variables + 1)
        yield 0, codes.reshape(-1), len(codes), min(len(codes), n_safe)
        return
    least, most = (0 if codes.dtype.kind == "u" else -2), 2 ** (8 * dtype.itemsize - 1) - 1
    for start in range(0, len(codes), BLOCK_ROWS):
        part = codes[start : start + BLOCK_ROWS]
        flat = np.empty(part.size + width, dtype)
        if not np.can_cast(codes.dtype, dtype):
            # codes that a narrower integer cannot represent must remain out of range
            part = part.clip(least, most)
        flat[: part.size].reshape(part.shape)[...] = part
        yield start, flat, len(part), len(part)
