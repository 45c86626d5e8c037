"""Batches of samples as lists of table rows: one list per sample, the same for dense and sparse samples.

Each function takes ``(source, keys, first, n_rows, entries, starts, stops)``: the samples, how to find table rows, the
batch, and what is filled: sample s of the batch owns ``entries[starts[s]:stops[s]]``, int32. A sample with nothing
observed gets an empty list.
"""

from functools import lru_cache

import numpy as np
from numba import njit


@lru_cache
def make_dense_combined(size):  # type: ignore[no-untyped-def]
    """List combinations of ``size`` neighbouring variables of dense codes.

    The size is a constant of the code, so that the compiler lists several combinations at a time.
    """

    @njit(nogil=True)
    def list_rows(source, keys, first, n_rows, entries, starts, stops):  # type: ignore[no-untyped-def]
        codes = source[0]
        bases, steps, complete = keys
        n_variables, n_lists = codes.shape[1], bases.size
        n_whole = n_variables // size
        for s in range(n_rows):
            at = s * n_lists
            for j in range(n_whole):
                entry = bases[j]
                for k in range(size):
                    entry += np.int32(codes[first + s, j * size + k]) * steps[j * size + k]
                entries[at + j] = entry
            if n_whole < n_lists:
                entry = bases[n_whole]
                for v in range(n_whole * size, n_variables):
                    entry += np.int32(codes[first + s, v]) * steps[v]
                entries[at + n_whole] = entry
            starts[s] = stops[s] = at
            if complete:
                stops[s] += n_lists
            else:
                largest = codes[first + s, 0]
                for v in range(1, n_variables):
                    largest = max(largest, codes[first + s, v])
                if largest >= 0:
                    stops[s] += n_lists

    return list_rows


@njit(nogil=True)
def list_sparse_combined(source, keys, first, n_rows, entries, starts, stops):  # type: ignore[no-untyped-def]
    """List combinations of neighbouring variables of sparse samples."""
    indptr, indices = source
    bases, places, gains = keys
    n_lists = bases.size
    for s in range(n_rows):
        at = s * n_lists
        for j in range(n_lists):
            entries[at + j] = bases[j]
        for i in range(indptr[first + s], indptr[first + s + 1]):
            entries[at + places[indices[i]]] += gains[indices[i]]
        starts[s] = stops[s] = at
        if indptr[first + s + 1] > indptr[first + s]:
            stops[s] += n_lists


@njit(nogil=True)
def list_dense_held(source, keys, first, n_rows, entries, starts, stops):  # type: ignore[no-untyped-def]
    """List the levels that dense samples hold."""
    codes, offsets = source[0], keys[0]
    at = 0
    for s in range(n_rows):
        starts[s] = at
        for v in range(codes.shape[1]):
            code = codes[first + s, v]
            # written always, kept only where observed: cheaper than a branch nobody can predict
            entries[at] = offsets[v] + code
            at += code >= 0
        stops[s] = at
