"""Triple counting: one pass over a block, into a cube of levels."""

from pmflib.kernels.llvm.saved_code import compile_kernel


@compile_kernel()
def add_triples(indptr, indices, table):  # type: ignore[no-untyped-def]
    """Add the triples of a block.

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
