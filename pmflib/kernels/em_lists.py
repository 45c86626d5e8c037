"""Batches of samples as lists of table rows: one list per sample, the same for dense and sparse samples.

Each function takes ``(source, first, keys, n_rows, entries, starts, stops)``: the samples, how to find table rows, the
batch, and what is filled: sample s of the batch owns ``entries[starts[s]:stops[s]]``, int32. A sample with nothing
observed gets an empty list.
"""

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pmflib.kernels.llvm.combining import LISTED, count_read, make_combine, make_plain_combine
from pmflib.kernels.llvm.saved_code import compile_kernel

Keys: TypeAlias = npt.NDArray[np.int32]


@lru_cache
def make_dense_combined(size: int, *, plain: bool = False) -> Any:
    """List combinations of ``size`` neighbouring variables of dense codes, flat, with `count_beyond` more behind.

    Keys are those of `arrange_keys`, the numbers of variables and lists, and whether every cell is observed. Beyond the
    lists there is room for 7 more entries.
    """
    combine = (make_plain_combine if plain else make_combine)(size)

    @compile_kernel(size, int(plain))
    def list_rows(source, first, keys, n_rows, entries, starts, stops):  # type: ignore[no-untyped-def]
        codes = source[0]
        bases, steps, n_variables, n_lists, complete = keys
        for s in range(n_rows):
            # what is written beyond a row is overwritten by the next
            for j in range(0, n_lists, LISTED):
                at = (first + s) * n_variables + j * size
                combine(codes, at, bases, steps, j, entries, s * n_lists + j)
            starts[s] = s * n_lists
            stops[s] = starts[s] + n_lists
            if not complete:
                n_held = 0
                for code in codes[(first + s) * n_variables : (first + s + 1) * n_variables]:
                    n_held += code >= 0
                if n_held == 0:
                    stops[s] = starts[s]

    return list_rows


def count_beyond(n_lists: int, size: int) -> int:
    """Codes behind the last row that are read, whatever they are."""
    return n_lists // LISTED * LISTED * size + count_read(size)


def arrange_keys(bases: Keys, steps: Keys, size: int) -> tuple[Keys, Keys]:
    """Arrange keys as `llvm.combining.make_combine` reads them: eights of lists, filled up with zeros."""
    n_eights = -(-bases.size // LISTED)
    wide_bases, wide_steps = (np.zeros(n_eights * LISTED * k, np.int32) for k in (1, size))
    wide_bases[: bases.size] = bases
    wide_steps[: steps.size] = steps
    by_place = wide_steps.reshape(n_eights, LISTED, size).transpose(0, 2, 1)
    return wide_bases, np.ascontiguousarray(by_place).ravel()


@compile_kernel()
def list_sparse_combined(source, first, keys, n_rows, entries, starts, stops):  # type: ignore[no-untyped-def]
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


@compile_kernel()
def list_dense_held(source, first, keys, n_rows, entries, starts, stops):  # type: ignore[no-untyped-def]
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
