"""Level indices of dense codes: what is observed."""

import numpy as np

from pmflib.arrays import IntArray
from pmflib.kernels.llvm.saved_code import compile_kernel


@compile_kernel()
def write_held(codes, offsets, indptr, indices):  # type: ignore[no-untyped-def]
    """Write the level indices of all rows, and where each row starts.

    codes: int8 or int16 (n_rows, n_variables), -1 missing. offsets: int64 (n_variables + 1,). indptr: int64
    (n_rows + 1,), overwritten but for its first entry, 0. indices: int32, overwritten, a place longer than what is
    observed.
    """
    # unsigned places: numba looks for negative ones otherwise
    place = np.uint64(0)
    for row in range(np.uint64(len(codes))):
        for variable in range(np.uint64(codes.shape[1])):
            code = codes[row, variable]
            # written always, kept only where observed: cheaper than a branch nobody can predict
            indices[place] = offsets[variable] + code
            place += np.uint64(code >= 0)
        indptr[row + np.uint64(1)] = place


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
    indptr = np.zeros(len(codes) + 1, np.int64)
    indices = np.empty(np.count_nonzero(codes >= 0) + 1, np.int32)
    write_held(codes, offsets, indptr, indices)
    return indptr, indices[:-1]
