"""Level indices of dense codes: what is observed, found 64 codes at a time."""

import numpy as np

from pmflib.arrays import IntArray
from pmflib.kernels.llvm.saved_code import compile_kernel
from pmflib.kernels.llvm.vectors import STRIP_ROWS, count_ones, mask_least

WORD = STRIP_ROWS
"""Codes looked at together."""


@compile_kernel()
def find_row(codes, start, first, n_variables):  # type: ignore[no-untyped-def]
    """Bits of the observed among the codes of a row from variable ``first`` on, at most 64."""
    mask = mask_least(codes, start + first, 0)
    n_left = n_variables - first
    if n_left < WORD:
        mask &= (np.uint64(1) << np.uint64(n_left)) - np.uint64(1)
    return mask


@compile_kernel()
def count_held(codes, stride, n_variables, indptr, first_row, stop_row):  # type: ignore[no-untyped-def]
    """Set ``indptr[row + 1]`` to ``indptr[row]`` and the number of observed codes of the row.

    codes: int8 or int16, flat: rows from first_row on start at multiples of stride; 64 codes can be read from each
    variable whose number is a multiple of 64. indptr: int64 (n_rows + 1,).
    """
    for row in range(first_row, stop_row):
        total = indptr[row]
        for first in range(0, n_variables, WORD):
            total += count_ones(find_row(codes, (row - first_row) * stride, first, n_variables))
        indptr[row + 1] = total


@compile_kernel()
def write_held(codes, stride, offsets, indptr, indices, first_row, stop_row):  # type: ignore[no-untyped-def]
    """Write the level indices of rows that `count_held` measured. indices: int32 (indptr[-1],)."""
    n_variables = offsets.size - 1
    for row in range(first_row, stop_row):
        place = np.uint64(indptr[row])
        start = (row - first_row) * stride
        for first in range(0, n_variables, WORD):
            mask = find_row(codes, start, first, n_variables)
            while mask != 0:
                lowest = mask & (~mask + np.uint64(1))
                variable = np.uint64(first + count_ones(lowest - np.uint64(1)))
                indices[place] = offsets[variable] + codes[np.uint64(start) + variable]
                place += np.uint64(1)
                mask ^= lowest


def find_held(codes: IntArray, offsets: IntArray) -> tuple[IntArray, IntArray]:
    """Find the level indices of a dense block.

    Parameters
    ----------
    codes
        int8 or int16 of shape (n_rows, n_variables), contiguous; -1 is missing.
    offsets
        int64 of shape (n_variables + 1,).

    Returns
    -------
    ``indptr``, int64 of shape (n_rows + 1,), and ``indices``, int32, as a `pmflib.blocks.SparseBlock` has them.
    """
    n_rows, n_variables = codes.shape
    width = -(-n_variables // WORD) * WORD
    n_safe = min(n_rows, max(0, (codes.size - width) // n_variables + 1))
    # vectors read past a row's end: the last rows are copied where there is room behind them
    edge = np.full((n_rows - n_safe, width), -1, codes.dtype)
    edge[:, :n_variables] = codes[n_safe:]
    parts = [
        (codes.reshape(-1), n_variables, 0, n_safe),
        (edge.reshape(-1), width, n_safe, n_rows),
    ]
    indptr = np.zeros(n_rows + 1, np.int64)
    for flat, stride, first_row, stop_row in parts:
        count_held(flat, stride, n_variables, indptr, first_row, stop_row)
    indices = np.empty(indptr[-1], np.int32)
    for flat, stride, first_row, stop_row in parts:
        write_held(flat, stride, offsets, indptr, indices, first_row, stop_row)
    return indptr, indices
