"""Sums over pairs of the weights of several replicates at a time, by groups of variables.

As in `pmflib.counts.kernels.joined_variables`, the levels of a group of variables are numbered jointly, and weights
are added
up over the numbers of two groups. The weights of several replicates are added by one instruction and share a cache
line, so that eight replicates take about the time of one.
"""

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.base.compiled.saved_code import compile_kernel
from pmflib.counts.kernels.joined_variables import (
    JOINED_ROWS,
    add_pairs_of_group,
    add_pairs_of_groups,
    find_bases,
    group_variables,
    join_codes,
)
from pmflib.counts.kernels.scatter import add_weighted

LANES = 8
"""Replicates that are added up at a time: int64 numbers of a cache line, and of a register of AVX-512."""

MOST_LEVELS = 512
"""Number of levels of a variable from which replicates are scattered one by one: pairs of such variables would fill
memory."""


@compile_kernel()
def add_lanes(left, right, width, lanes, cells):  # type: ignore[no-untyped-def]
    """Add lanes of rows, int64 (n_rows, LANES), to cells indexed by two numbers; the right one is below width."""
    n_right = np.uint64(width)
    for row in range(np.uint64(left.size)):
        cell = np.uint64(left[row]) * n_right + np.uint64(right[row])
        for lane in range(np.uint64(LANES)):
            cells[cell, lane] += lanes[row, lane]


@compile_kernel()
def add_lane_groups(joined, lanes, firsts, sizes, bases, offsets, tables):  # type: ignore[no-untyped-def]
    """Add the pair counts of rows encoded by `join_codes` to one table per lane.

    joined: int16 (n_groups, n_rows). lanes: int64 (n_rows, LANES). tables: int64 (n_tables, n_levels, n_levels), of the
    first lanes. The rest as in `pmflib.counts.kernels.joined_variables`.
    """
    largest = sizes.max()
    cells = np.empty((largest * largest, LANES), np.int64)
    of_lane = np.empty(largest * largest, np.int64)
    sums = np.empty((bases.max(), largest), np.int64)
    alone = np.zeros(lanes.shape[0], np.int16)
    for left in range(sizes.size):
        own = cells[: sizes[left]]
        own[:] = 0
        add_lanes(joined[left], alone, 1, lanes, own)
        for lane in range(tables.shape[0]):
            part = of_lane[: sizes[left]]
            part[:] = own[:, lane]
            add_pairs_of_group(part, firsts[left : left + 2], bases, offsets, tables[lane])
        for right in range(left + 1, sizes.size):
            n_left, n_right = sizes[left], sizes[right]
            both = cells[: n_left * n_right]
            both[:] = 0
            add_lanes(joined[left], joined[right], n_right, lanes, both)
            for lane in range(tables.shape[0]):
                part = of_lane[: n_left * n_right]
                part[:] = both[:, lane]
                add_pairs_of_groups(
                    part.reshape(n_left, n_right),
                    firsts[left : left + 2],
                    firsts[right : right + 2],
                    bases,
                    offsets,
                    sums,
                    tables[lane],
                )


def add_replicates(codes: IntArray, changes: IntArray, offsets: IntArray, tables: IntArray) -> None:
    """Add the weights of each replicate in the rows that have a pair to the table of the replicate.

    Parameters
    ----------
    codes
        int8 or int16 of shape (n_rows, n_variables), -1 missing; no variable has more than 32,766 levels.
    changes
        int64 of shape (n_rows, n_replicates), of any sign; rows whose `LANES` replicates are all 0 are skipped.
    offsets
        int64 of shape (n_variables + 1,).
    tables
        int64 of shape (n_replicates, n_levels, n_levels); upper triangles are updated.

    Notes
    -----
    Memory: 64 bytes and 2 bytes for each group of variables, for each of `JOINED_ROWS` rows, and 1 MiB; more for two
    variables with many levels.
    """
    if int(np.diff(offsets).max()) >= MOST_LEVELS:
        for replicate, table in enumerate(tables):
            add_weighted(codes, np.ascontiguousarray(changes[:, replicate]), offsets, table)
        return
    for start in range(0, len(codes), JOINED_ROWS):
        near = np.ascontiguousarray(codes[start : start + JOINED_ROWS])
        bases = find_bases(near, offsets)
        every = _number_rows(near, np.arange(len(near)), bases)
        for first in range(0, len(tables), LANES):
            part = changes[start : start + JOINED_ROWS, first : first + LANES]
            rows = np.flatnonzero(part.any(axis=1))
            if not rows.size:
                continue
            lanes = np.zeros((rows.size, LANES), np.int64)
            lanes[:, : part.shape[1]] = part[rows]
            # smaller groups for few rows
            numbered = every if rows.size == len(near) else _number_rows(near, rows, bases)
            joined, firsts, sizes = numbered
            own = tables[first : first + LANES]
            add_lane_groups(joined, lanes, firsts, sizes, bases, offsets, own)


def _number_rows(
    codes: IntArray, rows: IntArray, bases: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Joint number of each group of variables in some rows, first variable of each group, and its count of numbers."""
    firsts, sizes = group_variables(bases, rows.size)
    joined = np.empty((sizes.size, rows.size), np.int16)
    lowest = np.empty(bases.size, np.int16)
    join_codes(codes, rows, firsts, bases.astype(np.int16), joined, lowest)
    return joined, firsts, sizes
