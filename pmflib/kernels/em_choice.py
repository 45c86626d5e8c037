"""Row kernels and lists of table rows in vector code, or in plain loops where that fails: the same bits."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from pmflib.kernels.em_arguments import ALIKE, Lists, Masses, Tables, Work
from pmflib.kernels.em_lists import arrange_keys, count_beyond, make_dense_combined
from pmflib.kernels.llvm.combining import LISTED
from pmflib.kernels.llvm.fallback import vector_code_works
from pmflib.kernels.llvm.lanes import ROWS
from pmflib.kernels.row_kernels import RowKernels, make_row_kernels

WHAT = "EM"


@lru_cache
def choose_row_kernels(width: int, n_vectors: int, n_panels: int) -> RowKernels:
    """Kernels as from `row_kernels.make_row_kernels`, called once with the types that samples come in."""

    def check() -> bool:
        return _adds_right(make_row_kernels(width, n_vectors, n_panels), width, n_vectors, n_panels)

    works = vector_code_works(WHAT, check)
    return make_row_kernels(width, n_vectors, n_panels, plain=not works)


@lru_cache
def choose_dense_combined(size: int, codes: Any) -> Callable[..., None]:
    """List as `pmflib.kernels.em_lists.make_dense_combined` does, for codes of a dtype."""

    def check() -> bool:
        return _lists_right(make_dense_combined(size), size, codes)

    works = vector_code_works(WHAT, check)
    list_rows: Callable[..., None] = make_dense_combined(size, plain=not works)
    return list_rows


def _adds_right(kernels: RowKernels, width: int, n_vectors: int, n_panels: int) -> bool:
    """Whether statistics of two rows, of one and two table rows, are Bayes' rule."""
    padded, n_sums = width * n_vectors * n_panels, ROWS * n_panels
    table, prior = np.linspace(0.5, 1.0, 2 * padded), np.linspace(1.0, 0.5, padded)
    levels = np.array([[0], [1]], np.int32)
    tables = Tables(table, prior, levels, np.log(prior)[None], np.log(table).reshape(2, padded))
    sizes = ((ROWS + 1) * padded, n_sums * width, n_sums, ROWS, ROWS)
    work = Work(*(np.zeros(size) for size in sizes))
    masses = Masses(np.zeros(2 * padded), np.zeros(padded), np.ones(ROWS), np.zeros(ROWS, np.int64))
    lists = Lists(np.array([1, 0, 1], np.int32), np.array([0, 1]), np.array([1, 3]), ALIKE)
    kernels.add_statistics(lists, np.empty(0), False, tables, work, masses)
    found = np.log(masses.fractions).sum() + masses.exponents.sum() * np.log(2.0)
    rows = table.reshape(2, padded)
    products = prior * np.stack([rows[1], rows[0] * rows[1]])
    totals = products.sum(axis=1)
    posteriors = products / totals[:, None]
    expected = np.stack([posteriors[1], posteriors.sum(axis=0)])
    return bool(
        np.isclose(found, np.log(totals).sum(), rtol=1e-12)
        and np.allclose(masses.by_entry.reshape(2, padded), expected, rtol=1e-12)
        and np.allclose(masses.by_state, expected[1], rtol=1e-12)
    )


def _lists_right(list_rows: Callable[..., None], size: int, dtype: Any) -> bool:
    """Whether rows of nine lists are those of the codes."""
    n_rows, n_lists = 3, LISTED + 1
    n_variables = n_lists * size
    codes = np.arange(n_rows * n_variables + count_beyond(n_lists, size)) % 3
    bases, steps = np.arange(n_lists, dtype=np.int32), np.arange(n_variables, dtype=np.int32)
    entries = np.empty(n_rows * n_lists + LISTED, np.int32)
    starts, stops = np.empty(n_rows, np.int64), np.empty(n_rows, np.int64)
    keys = (*arrange_keys(bases, steps, size), n_variables, n_lists, True)
    list_rows((codes.astype(dtype),), 0, keys, n_rows, entries, starts, stops)
    held = codes[: n_rows * n_variables].reshape(n_rows, n_lists, size)
    expected = bases + (held * steps.reshape(n_lists, size)).sum(axis=2)
    return bool((entries[: expected.size].reshape(expected.shape) == expected).all())
