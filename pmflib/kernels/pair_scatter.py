"""Pair counting: one pass over a block, into the upper triangle of a table."""

import numpy as np

from pmflib.kernels.llvm.saved_code import compile_kernel


@compile_kernel()
def add_dense(codes, offsets, table):  # type: ignore[no-untyped-def]
    """Add the pairs of a dense block.

    codes: signed integers (n_rows, n_variables), -1 missing. offsets: int64 (n_variables + 1,). table: int64
    (n_levels, n_levels), changed in place: entry (a, b), a <= b, gains the number of rows that hold both levels.
    """
    n_rows, n_variables = codes.shape
    held = np.empty(n_variables, np.uint64)  # unsigned: numba need not look for negative ones
    for row in range(n_rows):
        n_held = 0
        for variable in range(n_variables):
            code = codes[row, variable]
            if code >= 0:
                held[n_held] = offsets[variable] + code
                n_held += 1
        for i in range(n_held):
            counts = table[held[i]]
            for j in range(i, n_held):
                counts[held[j]] += 1


@compile_kernel()
def add_sparse(indptr, indices, table):  # type: ignore[no-untyped-def]
    """Add the pairs of a sparse block.

    indptr: int64 (n_rows + 1,). indices: int32 (n_observed,), level indices, increasing within a row. table: as
    for `add_dense`, to the same result.
    """
    for row in range(indptr.size - 1):
        stop = indptr[row + 1]
        for i in range(indptr[row], stop):
            counts = table[indices[i]]
            for j in range(i, stop):
                counts[indices[j]] += 1
