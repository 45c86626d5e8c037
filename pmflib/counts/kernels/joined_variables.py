"""Weighted pair counts for weights with too many digits for bit planes, by groups of variables.

The levels of a group of variables in a row are encoded as one number. Weights are summed over the pairs of numbers of
two groups, in a table that fits in the fastest cache: one addition to memory serves all pairs of variables from the two
groups. The pair tables are then sums over this table, which take the time of a few hundred rows.
"""

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.base.compiled.saved_code import compile_kernel

JOINED_CELLS = 128
"""Largest number of combinations in a group of variables: the table of two groups, 128 KiB, shares the cache with the
rows.
"""
JOINED_ROWS = 1 << 16
"""Number of rows encoded at a time; each takes 2 bytes per group of variables."""
ROWS_PER_CELL = 1
"""Minimum number of rows per cell of a table of two groups; summing over cells takes as long as that many rows."""
SAMPLED_ROWS = 512
"""Number of rows used to guess that a variable has no missing cells; if the guess fails, rows are encoded again."""
CODED_ROWS = 256
"""Number of rows whose codes, read variable by variable, fit in the fastest cache."""


@compile_kernel()
def join_codes(codes, rows, firsts, bases, joined, lowest):  # type: ignore[no-untyped-def]
    """Encode the levels of each group of variables as one number per row.

    codes: signed integers (n_all, n_variables), -1 missing. rows: int64 (n_rows,). firsts: int64 (n_groups + 1,), first
    variable of each group. bases: int16 (n_variables,), numbers of a variable: its levels, and a last one for missing
    where any is. joined: int16 (n_groups, n_rows), overwritten; the first variable of a group counts most. lowest:
    int16 (n_variables,), overwritten by the least code of each: numbers are wrong where one is missing that has none.
    """
    lowest[:] = 0
    near = np.empty((codes.shape[1], CODED_ROWS), codes.dtype)
    for start in range(0, rows.size, CODED_ROWS):
        n_near = min(CODED_ROWS, rows.size - start)
        for row in range(np.uint64(n_near)):
            own = codes[rows[start + row]]
            for variable in range(np.uint64(own.size)):
                near[variable, row] = own[variable]
        for group in range(firsts.size - 1):
            numbers = joined[group, start : start + n_near]
            for row in range(np.uint64(n_near)):
                numbers[row] = 0
            for variable in range(firsts[group], firsts[group + 1]):
                base, column, least = bases[variable], near[variable], lowest[variable]
                for row in range(np.uint64(n_near)):
                    code = np.int16(column[row])
                    least = min(least, code)
                    number = base - np.int16(1) if code < 0 else code
                    numbers[row] = numbers[row] * base + number
                lowest[variable] = least


@compile_kernel()
def add_to_cells(left, right, width, weights, cells):  # type: ignore[no-untyped-def]
    """Add weights, int64 (n_rows,), to flat cells indexed by two numbers, of which the right one is below width."""
    n_right = np.uint64(width)
    for row in range(np.uint64(left.size)):
        cells[np.uint64(left[row]) * n_right + np.uint64(right[row])] += weights[row]


@compile_kernel()
def add_pairs_of_groups(cells, left, right, bases, offsets, sums, table):  # type: ignore[no-untyped-def]
    """Add the pair counts of variables from two groups, given their joint cells, to a table.

    cells: int64 (n_left, n_right). left, right: int64 (2,), first variable of a group and of the next.
    sums: int64, at least (largest base, n_right). table: as for `pmflib.counts.kernels.scatter.add_dense`.
    """
    n_left, n_right = cells.shape
    after = n_left
    for first in range(left[0], left[1]):
        after //= bases[first]
        sums[: bases[first]] = 0
        for number in range(n_left):
            digit = (number // after) % bases[first]
            for column in range(n_right):
                sums[digit, column] += cells[number, column]
        n_levels = offsets[first + 1] - offsets[first]
        inner = n_right
        for second in range(right[0], right[1]):
            base, n_second = bases[second], offsets[second + 1] - offsets[second]
            outer = inner
            inner //= base
            for level in range(n_levels):
                line = table[offsets[first] + level]
                for begin in range(0, n_right, outer):
                    for digit in range(n_second):
                        total = sums[level, begin + digit * inner]
                        for column in range(1, inner):
                            total += sums[level, begin + digit * inner + column]
                        line[offsets[second] + digit] += total


@compile_kernel()
def add_pairs_of_group(cells, group, bases, offsets, table):  # type: ignore[no-untyped-def]
    """Add the pair counts of variables within one group, including each variable with itself, to a table.

    cells: (n_cells,), sums of weights by number. group, bases, offsets, table: as for `add_pairs_of_groups`.
    """
    after_first = cells.size
    for first in range(group[0], group[1]):
        after_first //= bases[first]
        after_second = after_first * bases[first]
        for second in range(first, group[1]):
            after_second //= bases[second]
            for number in range(cells.size):
                level = (number // after_first) % bases[first]
                other = (number // after_second) % bases[second]
                if (
                    level < offsets[first + 1] - offsets[first]
                    and other < offsets[second + 1] - offsets[second]
                ):
                    table[offsets[first] + level, offsets[second] + other] += cells[number]


@compile_kernel()
def add_groups(joined, weights, firsts, sizes, bases, offsets, table):  # type: ignore[no-untyped-def]
    """Add the pair counts of rows encoded by `join_codes` to a table.

    joined: int16 (n_groups, n_rows). sizes: int64 (n_groups,), numbers of each group. The rest as above.
    """
    largest = sizes.max()
    cells = np.empty(largest * largest, np.int64)
    sums = np.empty((bases.max(), largest), np.int64)
    for left in range(sizes.size):
        own = cells[: sizes[left]]
        own[:] = 0
        for row in range(np.uint64(weights.size)):
            own[np.uint64(joined[left, row])] += weights[row]
        add_pairs_of_group(own, firsts[left : left + 2], bases, offsets, table)
        for right in range(left + 1, sizes.size):
            both = cells[: sizes[left] * sizes[right]]
            both[:] = 0
            add_to_cells(joined[left], joined[right], sizes[right], weights, both)
            add_pairs_of_groups(
                both.reshape(sizes[left], sizes[right]),
                firsts[left : left + 2],
                firsts[right : right + 2],
                bases,
                offsets,
                sums,
                table,
            )


def group_variables(bases: IntArray, n_rows: int) -> tuple[IntArray, IntArray]:
    """Group neighbouring variables so that the combinations of a group are few and fit in the cache.

    Parameters
    ----------
    bases
        Integers of shape (n_variables,), at least 1: number of codes of each variable.
    n_rows
        Number of rows to count.

    Returns
    -------
    First variable of each group followed by the number of variables, (n_groups + 1,), and combinations per group,
    (n_groups,).
    """
    most = min(JOINED_CELLS, int((min(n_rows, JOINED_ROWS) / ROWS_PER_CELL) ** 0.5))
    firsts, sizes = [0], [int(bases[0])]
    for variable, base in enumerate(bases[1:].tolist(), 1):
        if sizes[-1] * base <= most:
            sizes[-1] *= base
        else:
            firsts.append(variable)
            sizes.append(base)
    return np.array([*firsts, bases.size]), np.array(sizes)


def find_bases(codes: IntArray, offsets: IntArray) -> IntArray:
    """Count the codes of each variable, int64 (n_variables,): its levels, plus one if any cell is missing."""
    is_missing = codes.min(axis=0) < 0 if len(codes) else np.zeros(offsets.size - 1, bool)
    found: IntArray = np.diff(offsets) + is_missing
    return found


def add_joined(
    codes: IntArray, rows: IntArray, weights: IntArray, offsets: IntArray, table: IntArray
) -> None:
    """Add the weights of rows to the cells of each pair of levels they contain.

    Parameters
    ----------
    codes
        int8 or int16 of shape (n_all, n_variables), -1 missing; no variable has more than 32,766 levels.
    rows
        int64 of shape (n_rows,): rows to count.
    weights
        int64 of shape (n_rows,): their weights.
    offsets
        int64 of shape (n_variables + 1,).
    table
        int64 of shape (n_levels, n_levels); its upper triangle grows as by
        `pmflib.counts.kernels.scatter.add_weighted`.

    Notes
    -----
    Memory: 2 bytes per row and group of variables, for at most `JOINED_ROWS` rows, plus 128 KiB; more if two variables
    have more than `JOINED_CELLS` levels each, since their pair table is held in full.
    """
    bases = find_bases(codes[rows[:SAMPLED_ROWS]], offsets)
    lowest = np.empty(bases.size, np.int16)
    for start in range(0, rows.size, JOINED_ROWS):
        part = rows[start : start + JOINED_ROWS]
        while True:
            firsts, sizes = group_variables(bases, rows.size)
            joined = np.empty((sizes.size, part.size), np.int16)
            join_codes(codes, part, firsts, bases.astype(np.int16), joined, lowest)
            more = (lowest < 0) & (bases == np.diff(offsets))
            if not more.any():
                break
            bases += more
        own = weights[start : start + JOINED_ROWS]
        add_groups(joined, own, firsts, sizes, bases, offsets, table)
