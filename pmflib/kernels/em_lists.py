"""Batches of samples as lists of table rows: one list per sample, the same for dense and sparse samples.

Each function takes ``(source, keys, first, n_rows, entries, starts, stops)``: the samples, how to find table rows, the
batch, and what is filled: sample s of the batch owns ``entries[starts[s]:stops[s]]``, int32. A sample with nothing
observed gets an empty list.
"""

from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit

from pmflib.kernels.combining import LISTED, count_read, make_combine

Keys: TypeAlias = npt.NDArray[np.int32]


@lru_cache
def make_dense_combined(size, *, plain=False):  # type: ignore[no-untyped-def]
    """List combinations of ``size`` neighbouring variables of dense codes, contiguous.

    Keys are bases and steps as `pmflib.row_tables.Entries` has them, the same as `arrange_keys` has them, and whether
    every cell is observed. Beyond the lists there is room for 8 more entries.
    """
    combine, n_read = make_combine(size), count_read(size)

    @njit(nogil=True)
    def list_row(codes, row, bases, steps, entries, at):  # type: ignore[no-untyped-def]
        for j in range(bases.size):
            entry = bases[j]
            for v in range(j * size, min((j + 1) * size, codes.shape[1])):
                entry += np.int32(codes[row, v]) * steps[v]
            entries[at + j] = entry

    @njit(nogil=True)
    def list_rows(source, keys, first, n_rows, entries, starts, stops):  # type: ignore[no-untyped-def]
        codes = source[0]
        bases, steps, wide_bases, wide_steps, complete = keys
        n_variables, n_lists = codes.shape[1], bases.size
        n_fast = 0
        if not plain:
            # the last rows would read beyond the codes; what is written beyond a row is overwritten by the next
            flat = codes.reshape(codes.size)
            n_beyond = (wide_bases.size - LISTED) * size + n_read
            n_fast = max(0, min(n_rows, (codes.size - n_beyond) // n_variables + 1 - first))
            for s in range(n_fast):
                for j in range(0, n_lists, LISTED):
                    combine(
                        flat, (first + s) * n_variables + j * size, wide_bases, wide_steps, j,
                        entries, s * n_lists + j,
                    )  # fmt: skip
        for s in range(n_fast, n_rows):
            list_row(codes, first + s, bases, steps, entries, s * n_lists)
        for s in range(n_rows):
            starts[s] = s * n_lists
            stops[s] = starts[s] + n_lists
            if not complete:
                largest = codes[first + s, 0]
                for v in range(1, n_variables):
                    largest = max(largest, codes[first + s, v])
                if largest < 0:
                    stops[s] = starts[s]

    return list_rows


def arrange_keys(bases: Keys, steps: Keys, size: int) -> tuple[Keys, Keys]:
    """Arrange keys as `pmflib.kernels.combining.make_combine` reads them: eights of lists, filled up with zeros."""
    n_eights = -(-bases.size // LISTED)
    wide_bases, wide_steps = (np.zeros(n_eights * LISTED * k, np.int32) for k in (1, size))
    wide_bases[: bases.size] = bases
    wide_steps[: steps.size] = steps
    by_place = wide_steps.reshape(n_eights, LISTED, size).transpose(0, 2, 1)
    return wide_bases, np.ascontiguousarray(by_place).ravel()


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
