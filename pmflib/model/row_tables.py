"""Inputs of the row kernels for one block under one model: tables, lists of table rows, and work space."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pmflib.base.arrays import FloatArray, IntArray, StrataArray
from pmflib.base.blocks import Block, DenseBlock, SparseBlock

ListArray: TypeAlias = npt.NDArray[np.int32]

CHUNK_ENTRIES = 1 << 16
"""Number of positions in the lists of the samples processed at a time."""


@dataclass(frozen=True)
class Layout:
    """How samples are converted to lists of table rows; independent of whether the block is dense or sparse.

    Parameters
    ----------
    group
        Number of neighbouring variables whose levels are combined into one entry; 0 lists observed levels one by one.
    complete
        Whether every cell is observed; if not, "not observed" is an additional digit.
    """

    group: int
    complete: bool


@dataclass(frozen=True)
class Entries:
    """Numbering of the combinations of levels of neighbouring variables.

    Parameters
    ----------
    bases
        int32 of shape (n_lists,): entry of a list if every code is 0.
    steps
        int32 of shape (n_variables,): distance in entries between consecutive codes of a variable.
    levels
        int32 of shape (n_entries, group): levels that an entry combines, -1 for none.
    """

    bases: ListArray
    steps: ListArray
    levels: ListArray


@lru_cache(maxsize=64)
def number_entries(sizes: tuple[int, ...], layout: Layout) -> Entries:
    """Number the entries of a layout."""
    group, gap = max(layout.group, 1), int(layout.group > 0 and not layout.complete)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    bases, steps, levels = [], [], []
    start = 0
    for first in range(0, len(sizes), group):
        radices = [size + gap for size in sizes[first : first + group]]
        codes = np.indices(radices).reshape(len(radices), -1).T - gap
        combined = np.full((len(codes), group), -1)
        combined[:, : len(radices)] = np.where(
            codes < 0, -1, codes + offsets[first : first + len(radices)]
        )
        spans = [math.prod(radices[k + 1 :]) for k in range(len(radices))]
        bases.append(start + gap * sum(spans))
        steps.extend(spans)
        levels.append(combined)
        start += len(codes)
    numbers = (np.array(bases), np.array(steps), np.concatenate(levels))
    return Entries(*(array.astype(np.int32) for array in numbers))


def iterate_lists(
    block: Block, offsets: IntArray, layout: Layout, entries: Entries
) -> Iterator[tuple[slice, tuple[ListArray, IntArray, IntArray]]]:
    """Yield samples as lists of table rows, one chunk at a time; the next chunk overwrites the arrays.

    Parameters
    ----------
    block
        Valid samples.
    offsets
        int64 of shape (n_variables + 1,).
    layout
        Conversion of samples to lists.
    entries
        From `number_entries`.

    Yields
    ------
    Slice of the block's rows; their table rows, int32; int64 positions in these where each row's list starts and stops.
    """
    if not layout.group and isinstance(block, SparseBlock):
        # the block itself stores the observed levels
        yield slice(0, block.n_rows), (block.indices, block.indptr[:-1], block.indptr[1:])
        return
    list_rows, select, keys, longest = _choose_lists(block, offsets, layout, entries)
    n_chunk = max(1, min(block.n_rows, CHUNK_ENTRIES // max(longest, 1)))
    # a few extra positions, which are written but not used
    listed = np.empty(n_chunk * longest + 8, np.int32)
    starts, stops = np.empty(n_chunk, np.int64), np.empty(n_chunk, np.int64)
    for first in range(0, block.n_rows, n_chunk):
        n_rows = min(n_chunk, block.n_rows - first)
        list_rows(*select(first, n_rows), keys, n_rows, listed, starts, stops)
        yield slice(first, first + n_rows), (listed, starts[:n_rows], stops[:n_rows])


ListArguments: TypeAlias = Callable[[int, int], tuple[tuple[Any, ...], int]]
"""Maps the first row and a number of rows to arrays that contain them, and the position of the first row in these."""


def _choose_lists(
    block: Block, offsets: IntArray, layout: Layout, entries: Entries
) -> tuple[Callable[..., None], ListArguments, tuple[Any, ...], int]:
    """Choose the function that lists table rows, its sample and key arguments, and the maximum length of a list."""
    from pmflib.model.kernels import em_rows as em_rows

    if isinstance(block, SparseBlock):
        sparse = (block.indptr, block.indices)
        keys = _find_gains(offsets, layout, entries)
        return em_rows.list_sparse_combined, lambda first, _: (sparse, first), keys, len(keys[0])
    if not layout.group:
        dense = (block.codes,)
        longest = offsets.size - 1
        return em_rows.list_dense_observed, lambda first, _: (dense, first), (offsets,), longest
    return _combine_dense(block, layout, entries)


def _combine_dense(
    block: DenseBlock, layout: Layout, entries: Entries
) -> tuple[Callable[..., None], ListArguments, tuple[Any, ...], int]:
    from pmflib.model.kernels.em_rows import arrange_keys, choose_dense_combined, count_beyond

    n_variables, n_lists = block.codes.shape[1], entries.bases.size
    codes = np.ascontiguousarray(block.codes).ravel()
    n_beyond = count_beyond(n_lists, layout.group)

    def select(first: int, n_rows: int) -> tuple[tuple[Any, ...], int]:
        start, stop = first * n_variables, (first + n_rows) * n_variables
        part = codes[start : stop + n_beyond]
        # the last rows must be copied, with padding after them
        missing = stop + n_beyond - start - part.size
        if missing:
            part = np.concatenate([part, np.zeros(missing, codes.dtype)])
        return (part,), 0

    keys = arrange_keys(entries.bases, entries.steps, layout.group)
    how = choose_dense_combined(layout.group, codes.dtype)
    return how, select, (*keys, n_variables, n_lists, layout.complete), n_lists


def _find_gains(offsets: IntArray, layout: Layout, entries: Entries) -> tuple[ListArray, ...]:
    """Compute the entry of each list with nothing observed, and for each level, its list and its increment there."""
    bases, steps, group = entries.bases, entries.steps, layout.group
    sizes = np.diff(offsets)
    variables = np.repeat(np.arange(sizes.size), sizes)
    gap = int(not layout.complete)
    codes = np.arange(offsets[-1]) - offsets[variables] + gap
    blank = bases - gap * np.add.reduceat(steps, np.arange(0, steps.size, group))
    return (
        blank.astype(np.int32),
        (variables // group).astype(np.int32),
        (codes * steps[variables]).astype(np.int32),
    )


TABLE_BYTES = 1 << 19
"""Table size in bytes above which a row costs twice as much as in the first-level cache; less for long rows, which the
processor prefetches."""
MAX_TABLE_BYTES = 3 << 19
"""Maximum size of a table of combined levels, bytes; a second one is needed for masses."""
ENTRY_COST = 3.0
"""Cost of building and splitting up an entry of the tables, once per block, in units of one table row processed."""
GROUPS = (1, 2, 3, 5)
"""Group sizes: numbers of neighbouring variables to combine; each costs about 0.3 s of compilation per process."""
SMALL_BLOCK = 1 << 15
"""Number of observed cells below which no variables are combined: compilation would take longer than it saves."""
BATCH_BYTES = 24 << 10
"""Size of the products of a batch of rows, bytes, so that they stay in the first-level cache."""
MAX_BATCH = 64
VECTOR_COSTS = {8: 1.0, 4: 0.65, 2: 0.5}
"""Relative cost of a vector operation by number of float64: 8 fill one AVX-512, two AVX2, or four NEON registers."""
SHORT_ROW = 16
"""Maximum number of states for which row maxima are computed column by column."""
LOG_2 = math.log(2.0)


@lru_cache(maxsize=256)
def choose_layout(n_rows: int, n_observed: int, sizes: tuple[int, ...], padded: int) -> Layout:
    """Choose how many variables to combine.

    The cost of a layout is the number of table rows processed over all samples, weighted by a factor that grows as the
    table exceeds the caches, plus ``ENTRY_COST`` for each entry.
    """
    n_variables, complete = len(sizes), n_observed == n_rows * len(sizes)
    radices = np.array(sizes) + (not complete)

    def cost(n_listed: float, n_entries: float) -> float:
        distance = n_entries * padded * 8 / TABLE_BYTES * min(1.0, 64 / padded)
        return n_listed * (1 + distance) + ENTRY_COST * n_entries

    best, least = Layout(0, False), cost(n_observed, sum(sizes))
    for group in GROUPS if n_observed >= SMALL_BLOCK else GROUPS[:1]:
        starts = np.arange(0, radices.size, group)
        n_entries = float(np.multiply.reduceat(radices.astype(float), starts).sum())
        if group > 1 and n_entries * padded * 8 > MAX_TABLE_BYTES:
            break
        found = cost(n_rows * -(-n_variables // group), n_entries)
        if found < least:
            best, least = Layout(group, complete), found
    return best


class RowTables:
    """Tables of a model, and the lists of a block's samples.

    Parameters
    ----------
    block
        Valid samples.
    offsets
        int64 of shape (n_variables + 1,).
    log_prior, log_factors
        Floored logarithms, float64 of shapes (rank,), or (n_strata, rank), and (n_levels, rank).
    """

    def __init__(
        self, block: Block, offsets: IntArray, log_prior: FloatArray, log_factors: FloatArray
    ) -> None:
        from pmflib.model.kernels.em_arguments import THRESHOLD, Tables, Work, fill_tables
        from pmflib.model.kernels.em_rows import choose_row_kernels

        log_priors = np.atleast_2d(log_prior)
        n_strata, rank = log_priors.shape
        width, n_vectors, n_panels = choose_panels(rank)
        self.kernels = choose_row_kernels(width, n_vectors, n_panels)
        self.padded = width * n_vectors * n_panels
        sizes = tuple(np.diff(offsets).tolist())
        self.layout = choose_layout(block.n_rows, block.n_observed, sizes, self.padded)
        numbering = number_entries(sizes, self.layout)
        n_entries = len(numbering.levels)
        self.log_scale = float(log_priors.max())
        log_maxima = find_maxima(log_factors)
        scaled_priors, scaled = log_priors - self.log_scale, log_factors - log_maxima[:, None]
        priors, table, *work = self._allocate(n_strata, n_entries, width, n_panels)
        self.work = Work(*work)
        filled = priors.reshape(n_strata, self.padded)[:, :rank]
        np.maximum(np.exp(scaled_priors), THRESHOLD, out=filled)
        self.log_scales = np.empty(n_entries)
        fill_tables(
            np.exp(scaled),
            log_maxima,
            numbering.levels,
            THRESHOLD,
            table.reshape(n_entries, self.padded),
            self.log_scales,
        )
        self.model = Tables(table, priors, numbering.levels, scaled_priors, scaled)
        self.numbering = numbering

    def _allocate(
        self, n_strata: int, n_entries: int, width: int, n_panels: int
    ) -> tuple[FloatArray, ...]:
        """Allocate priors, table, and work space in the order of `pmflib.model.kernels.em_arguments`."""
        n_batch = max(1, min(MAX_BATCH, BATCH_BYTES // (self.padded * 8)) // 8) * 8
        sums = (n_batch * n_panels * width, n_batch * n_panels, n_batch, n_batch)
        tables = (n_strata * self.padded, n_entries * self.padded, (n_batch + 1) * self.padded)
        return allocate(*tables, *sums)


def find_maxima(values: FloatArray) -> FloatArray:
    """Return the maximum of each row; NumPy reduces short rows several times more slowly than columns."""
    return reduce(np.maximum, values.T) if values.shape[1] <= SHORT_ROW else values.max(axis=1)


def choose_panels(rank: int) -> tuple[int, int, int]:
    """Choose float64 per vector, vectors per panel (at most 8) and number of panels to minimise the cost of a row."""
    width = min(VECTOR_COSTS, key=lambda width: VECTOR_COSTS[width] * -(-rank // width))
    n_needed = -(-rank // width)
    n_panels = -(-n_needed // 8)
    return width, -(-n_needed // n_panels), n_panels


def allocate(*sizes: int) -> tuple[FloatArray, ...]:
    """Allocate float64 zeros of shape (size,) each, aligned to 64 bytes so that no vector straddles two cache lines."""
    ends = np.cumsum([-(-size // 8) * 8 for size in sizes]).tolist()
    raw = np.zeros(ends[-1] + 8)
    skipped = -raw.__array_interface__["data"][0] % 64 // 8
    starts = [0, *ends[:-1]]
    return tuple(
        raw[skipped + start : skipped + start + size]
        for start, size in zip(starts, sizes, strict=True)
    )


def add_block_masses(
    block: Block,
    offsets: IntArray,
    log_prior: FloatArray,
    log_factors: FloatArray,
    level_mass: FloatArray,
    state_mass: FloatArray,
    strata: StrataArray | None = None,
) -> float:
    """Add the masses of a block to level_mass and state_mass in place, and return its log-likelihood in nats.

    Parameters
    ----------
    block, offsets, log_prior, log_factors
        As for `RowTables`.
    level_mass, state_mass
        float64 of shapes (n_levels, rank) and (rank,).
    strata
        int32 of shape (n_rows,): index of each row's prior; None if there is only one.
    """
    from pmflib.model.kernels.em_arguments import ALIKE, Lists, Masses, collect_masses

    tables = RowTables(block, offsets, log_prior, log_factors)
    levels, rank = tables.model.levels, log_factors.shape[1]
    weighted = block.weights is not None
    weights = np.empty(0) if block.weights is None else block.weights
    mass, states = allocate(len(levels) * tables.padded, tables.padded)
    masses = Masses(mass, states, np.ones(8), np.zeros(8, np.int64))
    log_likelihood = 0.0
    for rows, lists in iterate_lists(block, offsets, tables.layout, tables.numbering):
        of_rows = Lists(*lists, ALIKE if strata is None else strata[rows])
        log_likelihood += tables.kernels.add_statistics(
            of_rows, weights[rows], weighted, tables.model, tables.work, masses
        )
    if not weighted:
        exponent = float(masses.exponents.sum())
        log_likelihood += exponent * LOG_2 + float(np.log(masses.fractions).sum())
    by_entry = mass.reshape(len(levels), tables.padded)
    log_likelihood += collect_masses(by_entry, levels, tables.log_scales, level_mass)
    state_mass += states[:rank]
    return float(log_likelihood + states.sum() * tables.log_scale)


def score_block(
    block: Block,
    offsets: IntArray,
    log_prior: FloatArray,
    log_factors: FloatArray,
    log_probs: FloatArray,
    posteriors: FloatArray,
    strata: StrataArray | None = None,
) -> None:
    """Fill in the log-probability, (n_rows,), and the posterior, (n_rows, rank) or (n_rows, 0) for none, of every row.

    Parameters
    ----------
    block, offsets, log_prior, log_factors
        As for `RowTables`.
    log_probs, posteriors
        float64; a row with nothing observed gets log-probability 0 and the prior.
    strata
        As for `add_block_masses`.
    """
    from pmflib.model.kernels.em_arguments import ALIKE, Lists

    tables = RowTables(block, offsets, log_prior, log_factors)
    scales = (tables.log_scales, tables.log_scale)
    for rows, lists in iterate_lists(block, offsets, tables.layout, tables.numbering):
        of_rows = Lists(*lists, ALIKE if strata is None else strata[rows])
        filled = (log_probs[rows], posteriors[rows])
        tables.kernels.score(of_rows, tables.model, tables.work, *scales, *filled)
