"""Level indices of the observed cells of dense rows."""

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.base.compiled.saved_code import compile_kernel


@compile_kernel()
def write_observed(codes, offsets, indptr, indices):  # type: ignore[no-untyped-def]
    """Write the level indices of all rows and the start of each row.

    codes: int8 or int16 (n_rows, n_variables), -1 missing. offsets: int64 (n_variables + 1,). indptr: int64 (n_rows +
    1,), overwritten except for its first entry, 0. indices: int32, overwritten, one longer than the number of observed
    cells.
    """
    # unsigned positions: otherwise numba handles negative ones
    position = np.uint64(0)
    for row in range(np.uint64(len(codes))):
        for variable in range(np.uint64(codes.shape[1])):
            code = codes[row, variable]
            # always written, but kept only where observed: cheaper than an unpredictable branch
            indices[position] = offsets[variable] + code
            position += np.uint64(code >= 0)
        indptr[row + np.uint64(1)] = position


def find_observed(codes: IntArray, offsets: IntArray) -> tuple[IntArray, IntArray]:
    """Find the level indices of a dense block.

    Parameters
    ----------
    codes
        int8 or int16 of shape (n_rows, n_variables), contiguous; -1 is missing.
    offsets
        int64 of shape (n_variables + 1,).

    Returns
    -------
    ``indptr``, int64 of shape (n_rows + 1,), and ``indices``, int32, as in a `pmflib.base.blocks.SparseBlock`.
    """
    indptr = np.zeros(len(codes) + 1, np.int64)
    indices = np.empty(np.count_nonzero(codes >= 0) + 1, np.int32)
    write_observed(codes, offsets, indptr, indices)
    return indptr, indices[:-1]
