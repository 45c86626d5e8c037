"""EM row kernels: products of scaled probabilities over lists of table rows, by vectors or loops with equal bits.

A row is a list of table rows to multiply. A table row belongs to a level or to a combination of levels of a few
neighbouring variables (an entry), and is scaled so that its largest probability is 1. Dense and sparse samples become
the same lists, so their results agree to the bit.

Each function that lists table rows takes ``(source, first, keys, n_rows, entries, starts, stops)``: the samples, the
position of the batch, the keys of the table rows, and the arrays to fill. Sample s of the batch owns
``entries[starts[s]:stops[s]]``, int32. A sample with nothing observed gets an empty list.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from pmflib.base.compiled.lanes import ROWS, Lanes, make_lanes
from pmflib.base.compiled.plain_lanes import make_plain_lanes
from pmflib.base.compiled.saved_code import compile_kernel
from pmflib.base.compiled.vectors import LISTED, count_read, make_combine, make_plain_combine
from pmflib.counts.kernels.readiness import vector_code_works
from pmflib.model.kernels.em_arguments import (
    ALIKE,
    INNER,
    LONG,
    MARGIN,
    THRESHOLD,
    UNCOUNTED,
    Lists,
    Masses,
    Shape,
    Tables,
    Work,
    make_repair_row,
)


class RowKernels(NamedTuple):
    """Kernels for tables of one width."""

    add_statistics: Callable[..., Any]
    """(lists, weights, weighted, tables, work, masses) -> log-likelihood under the scaled model, nats. lists: `Lists`.
    weights: float64 (n_rows,), read only if weighted, a bool. tables: `Tables`. work: `Work`. masses: `Masses`, grow.
    Without weights, most of the log-likelihood is left in the fractions and exponents of the masses, as
    `pmflib.base.compiled.lanes.Lanes.divide` does."""
    score: Callable[..., Any]
    """(lists, tables, work, log_scales, log_scale, log_probs, posteriors). log_scales: float64 (n_entries,), logarithm
    of the factor removed from each entry, nats; log_scale: float, the same for the priors. Filled are log_probs,
    float64 (n_rows,), and posteriors, (n_rows, rank), or (n_rows, 0) to skip them.
    """


@lru_cache
def make_row_kernels(
    width: int, n_vectors: int, n_panels: int, *, plain: bool = False
) -> RowKernels:
    """Make kernels for tables of ``width * n_vectors * n_panels`` columns, the last of which are padding.

    Parameters
    ----------
    width, n_vectors
        As for `pmflib.base.compiled.lanes.make_lanes`.
    n_panels
        Panels in a table row.
    plain
        Whether to use plain loops instead of LLVM vectors.
    """
    lanes = (make_plain_lanes if plain else make_lanes)(width, n_vectors)
    shape = (width, n_vectors, n_panels, int(plain))
    multiply_batch = _make_multiply_batch(lanes, shape)
    return RowKernels(
        _make_add_statistics(multiply_batch, lanes, shape),
        _make_score(multiply_batch, shape),
    )


def _make_multiply_batch(lanes: Lanes, shape: Shape) -> Any:
    """Make the kernel that computes products of a batch of rows and their sums."""
    width, n_vectors, n_panels, _ = shape
    panel = width * n_vectors
    padded = panel * n_panels
    multiply, add_lanes = lanes.multiply, lanes.add_lanes
    repair_row = make_repair_row(multiply, shape)

    @compile_kernel(*shape, saved=False, **INNER, forceinline=True)
    def multiply_batch(lists, begin, n_rows, tables, work):  # type: ignore[no-untyped-def]
        """Fill products, totals and scales of rows ``begin + s``; a scale is 1, or 0 if nothing is observed.

        If it returns True, the totals lack a factor exp(logs).
        """
        entries, starts, stops, strata = lists
        products, sums, totals, logs, scales = work
        n_batch = logs.size
        for s in range(n_rows):
            start, stop, at = starts[begin + s], stops[begin + s], s * padded
            prior_at = strata[begin + s] * padded if strata.size else 0
            scales[s] = start < stop
            for p in range(n_panels):
                if stop - start > LONG:
                    # a total of 0 marks the row for repair
                    for k in range(width):
                        sums[(p * n_batch + s) * width + k] = 0.0
                    continue
                multiply(
                    tables.rows, entries, start, stop, padded, p * panel,
                    tables.priors, prior_at + p * panel, products, at + p * panel, THRESHOLD,
                    sums, (p * n_batch + s) * width,
                )  # fmt: skip
        doubtful = 0
        for s in range(0, n_batch * n_panels, ROWS):
            doubtful |= add_lanes(sums, s * width, totals, s, MARGIN * THRESHOLD)
        for p in range(1, n_panels):
            for s in range(n_rows):
                totals[s] += totals[p * n_batch + s]
        if not doubtful:
            return False
        for s in range(n_rows):
            logs[s] = 0.0
            if not totals[s] > MARGIN * THRESHOLD:
                stratum = strata[begin + s] if strata.size else 0
                start, stop = starts[begin + s], stops[begin + s]
                totals[s], logs[s] = repair_row(
                    entries, start, stop, stratum, tables, products, s * padded, sums
                )
        return True

    return multiply_batch


def _make_add_statistics(multiply_batch: Any, lanes: Lanes, shape: Shape) -> Any:
    width, n_vectors, n_panels, _ = shape
    panel = width * n_vectors
    padded = panel * n_panels
    divide, spread = lanes.divide, lanes.spread

    @compile_kernel(*shape, **UNCOUNTED)
    def add_statistics(lists, weights, weighted, tables, work, masses):  # type: ignore[no-untyped-def]
        starts, totals, logs, scales = lists.starts, work.totals, work.logs, work.scales
        log_likelihood = 0.0
        for begin in range(0, starts.size, scales.size):
            n_rows = min(scales.size, starts.size - begin)
            repaired = multiply_batch(lists, begin, n_rows, tables, work)
            if weighted:
                for s in range(n_rows):
                    scales[s] *= weights[begin + s]
                    log_likelihood += scales[s] * math.log(totals[s])
            if repaired:
                for s in range(n_rows):
                    log_likelihood += scales[s] * logs[s]
            for s in range(n_rows, scales.size):
                scales[s] = 0.0
            divide(scales, totals, scales.size, masses.fractions, masses.exponents)
            for p in range(n_panels):
                spread(
                    masses.by_entry, lists.entries, starts, lists.stops, begin, n_rows,
                    padded, p * panel, work.products, scales, masses.by_state,
                )  # fmt: skip
        return log_likelihood

    return add_statistics


def _make_score(multiply_batch: Any, shape: Shape) -> Any:
    padded = shape[0] * shape[1] * shape[2]

    @compile_kernel(*shape, **UNCOUNTED)
    def score(lists, tables, work, log_scales, log_scale, log_probs, posteriors):  # type: ignore[no-untyped-def]
        entries, starts, stops, _ = lists
        products, _, totals, logs, scales = work
        for begin in range(0, starts.size, scales.size):
            n_rows = min(scales.size, starts.size - begin)
            repaired = multiply_batch(lists, begin, n_rows, tables, work)
            for s in range(n_rows):
                start, stop = starts[begin + s], stops[begin + s]
                log_prob = math.log(totals[s]) + (logs[s] if repaired else 0.0)
                for i in range(start, stop):
                    log_prob += log_scales[entries[i]]
                log_probs[begin + s] = log_prob + log_scale if start < stop else 0.0
                for f in range(posteriors.shape[1]):
                    posteriors[begin + s, f] = products[s * padded + f] / totals[s]

    return score


Keys: TypeAlias = npt.NDArray[np.int32]


@lru_cache
def make_dense_combined(size: int, *, plain: bool = False) -> Any:
    """Make the kernel that lists combinations of ``size`` neighbouring variables of flat dense codes.

    The codes are followed by `count_beyond` more. Keys are those of `arrange_keys`, the numbers of variables and lists,
    and whether every cell is observed. The output has room for 7 entries beyond the lists.
    """
    combine = (make_plain_combine if plain else make_combine)(size)

    @compile_kernel(size, int(plain))
    def list_rows(source, first, keys, n_rows, entries, starts, stops):  # type: ignore[no-untyped-def]
        codes = source[0]
        bases, steps, n_variables, n_lists, complete = keys
        for s in range(n_rows):
            # entries written beyond a row are overwritten by the next row
            for j in range(0, n_lists, LISTED):
                at = (first + s) * n_variables + j * size
                combine(codes, at, bases, steps, j, entries, s * n_lists + j)
            starts[s] = s * n_lists
            stops[s] = starts[s] + n_lists
            if not complete:
                n_observed = 0
                for code in codes[(first + s) * n_variables : (first + s + 1) * n_variables]:
                    n_observed += code >= 0
                if n_observed == 0:
                    stops[s] = starts[s]

    return list_rows


def count_beyond(n_lists: int, size: int) -> int:
    """Return the number of codes read beyond the last row; their values do not matter."""
    return n_lists // LISTED * LISTED * size + count_read(size)


def arrange_keys(bases: Keys, steps: Keys, size: int) -> tuple[Keys, Keys]:
    """Arrange keys for `llvm.combining.make_combine`: in groups of eight lists, padded with zeros."""
    n_eights = -(-bases.size // LISTED)
    wide_bases, wide_steps = (np.zeros(n_eights * LISTED * k, np.int32) for k in (1, size))
    wide_bases[: bases.size] = bases
    wide_steps[: steps.size] = steps
    by_position = wide_steps.reshape(n_eights, LISTED, size).transpose(0, 2, 1)
    return wide_bases, np.ascontiguousarray(by_position).ravel()


@compile_kernel()
def list_sparse_combined(source, first, keys, n_rows, entries, starts, stops):  # type: ignore[no-untyped-def]
    """List combinations of neighbouring variables of sparse samples."""
    indptr, indices = source
    bases, positions, gains = keys
    n_lists = bases.size
    for s in range(n_rows):
        at = s * n_lists
        for j in range(n_lists):
            entries[at + j] = bases[j]
        for i in range(indptr[first + s], indptr[first + s + 1]):
            entries[at + positions[indices[i]]] += gains[indices[i]]
        starts[s] = stops[s] = at
        if indptr[first + s + 1] > indptr[first + s]:
            stops[s] += n_lists


@compile_kernel()
def list_dense_observed(source, first, keys, n_rows, entries, starts, stops):  # type: ignore[no-untyped-def]
    """List the observed levels of dense samples."""
    codes, offsets = source[0], keys[0]
    at = 0
    for s in range(n_rows):
        starts[s] = at
        for v in range(codes.shape[1]):
            code = codes[first + s, v]
            # always written, but kept only where observed: cheaper than an unpredictable branch
            entries[at] = offsets[v] + code
            at += code >= 0
        stops[s] = at


WHAT = "EM"


@lru_cache
def choose_row_kernels(width: int, n_vectors: int, n_panels: int) -> RowKernels:
    """Return the kernels from `make_row_kernels`, compiled for the types of samples."""

    def check() -> bool:
        return _adds_right(make_row_kernels(width, n_vectors, n_panels), width, n_vectors, n_panels)

    works = vector_code_works(WHAT, check)
    return make_row_kernels(width, n_vectors, n_panels, plain=not works)


@lru_cache
def choose_dense_combined(size: int, codes: Any) -> Callable[..., None]:
    """Return the kernel from `pmflib.model.kernels.em_rows.make_dense_combined` for codes of a dtype."""

    def check() -> bool:
        return _lists_right(make_dense_combined(size), size, codes)

    works = vector_code_works(WHAT, check)
    list_rows: Callable[..., None] = make_dense_combined(size, plain=not works)
    return list_rows


def _adds_right(kernels: RowKernels, width: int, n_vectors: int, n_panels: int) -> bool:
    """Return whether the statistics of two rows, with one and two table rows, obey Bayes' rule."""
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
    """Return whether the lists of nine entries match the codes."""
    n_rows, n_lists = 3, LISTED + 1
    n_variables = n_lists * size
    codes = np.arange(n_rows * n_variables + count_beyond(n_lists, size)) % 3
    bases, steps = np.arange(n_lists, dtype=np.int32), np.arange(n_variables, dtype=np.int32)
    entries = np.empty(n_rows * n_lists + LISTED, np.int32)
    starts, stops = np.empty(n_rows, np.int64), np.empty(n_rows, np.int64)
    keys = (*arrange_keys(bases, steps, size), n_variables, n_lists, True)
    list_rows((codes.astype(dtype),), 0, keys, n_rows, entries, starts, stops)
    listed = codes[: n_rows * n_variables].reshape(n_rows, n_lists, size)
    expected = bases + (listed * steps.reshape(n_lists, size)).sum(axis=2)
    return bool((entries[: expected.size].reshape(expected.shape) == expected).all())
