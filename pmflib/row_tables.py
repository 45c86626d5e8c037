"""What the row kernels need for one block under one model: tables, lists and work space."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pmflib.arrays import FloatArray, IntArray
from pmflib.blocks import Block, DenseBlock, SparseBlock

PLAIN = bool(os.environ.get("PMF_PLAIN_KERNELS"))
"""Whether to do without LLVM vectors: several times slower, the same bits; for a numba that cannot make them."""

ListArray: TypeAlias = npt.NDArray[np.int32]

TABLE_BYTES = 1 << 19
"""Size of a table, bytes, from which a table row costs twice as much as one in the nearest cache; long rows, which the
machine fetches ahead, less."""
MAX_TABLE_BYTES = 3 << 19
"""Size of the largest table of combined levels, bytes; there is another one for masses."""
ENTRY_COST = 3.0
"""Making an entry of the tables and taking it apart, once per block, in table rows multiplied and added to."""
GROUPS = (1, 2, 3, 5)
"""Numbers of neighbouring variables that are combined; each costs a process about 0.3 s of compilation once."""
SMALL_BLOCK = 1 << 15
"""Observed cells below which nothing is combined: the block is not worth a compilation of its own."""
BATCH_BYTES = 24 << 10
"""Products of a batch of rows: they stay in the nearest cache."""
MAX_BATCH = 64
CHUNK_ENTRIES = 1 << 15
"""Places in the lists of the samples that are worked on at a time."""
WIDTH = 8
"""float64 per vector: one AVX-512 register, two of AVX2, four of NEON."""


@dataclass(frozen=True)
class Layout:
    """How samples become lists of table rows; it depends on the block alone, not on its being dense or sparse.

    Parameters
    ----------
    group
        Neighbouring variables whose levels are combined into one entry; 0 lists the levels held, one by one.
    complete
        Whether every cell is observed; if not, "not observed" is a digit of its own.
    """

    group: int
    complete: bool


@dataclass(frozen=True)
class Entries:
    """Numbering of the combinations of levels of neighbouring variables.

    Parameters
    ----------
    bases
        int32 of shape (n_lists,): entry of a list where every code is 0.
    steps
        int32 of shape (n_variables,): entries between two codes of a variable.
    levels
        int32 of shape (n_entries, group): levels that an entry stands for, -1 where none.
    """

    bases: ListArray
    steps: ListArray
    levels: ListArray


@lru_cache(maxsize=256)
def choose_layout(n_rows: int, n_observed: int, sizes: tuple[int, ...], padded: int) -> Layout:
    """Choose how many variables to combine.

    The cost of a layout is the number of table rows multiplied and added to, over all samples, dearer as the table
    outgrows the caches, and ``ENTRY_COST`` for each entry.
    """
    n_variables, complete = len(sizes), n_observed == n_rows * len(sizes)
    radices = np.array(sizes) + (not complete)

    def cost(n_listed: float, n_entries: float) -> float:
        distance = n_entries * padded * 8 / TABLE_BYTES * min(1.0, 64 / padded)
        return n_listed * (1 + distance) + ENTRY_COST * n_entries

    best, least = Layout(0, False), cost(n_observed, sum(sizes))
    for group in GROUPS if n_observed >= SMALL_BLOCK else GROUPS[:1]:
        n_entries = _count_entries(radices, group)
        if group > 1 and n_entries * padded * 8 > MAX_TABLE_BYTES:
            break
        found = cost(n_rows * -(-n_variables // group), n_entries)
        if found < least:
            best, least = Layout(group, complete), found
    return best


def _count_entries(radices: IntArray, group: int) -> float:
    products = np.multiply.reduceat(radices.astype(float), np.arange(0, radices.size, group))
    return float(products.sum())


@lru_cache(maxsize=64)
def _number_entries(sizes: tuple[int, ...], layout: Layout) -> Entries:
    group, gap = max(layout.group, 1), int(layout.group > 0 and not layout.complete)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    bases, steps, levels = [], [], []
    start = 0
    for first in range(0, len(sizes), group):
        radices = [size + gap for size in sizes[first : first + group]]
        codes = np.indices(radices).reshape(len(radices), -1).T - gap
        held = np.full((len(codes), group), -1)
        held[:, : len(radices)] = np.where(
            codes < 0, -1, codes + offsets[first : first + len(radices)]
        )
        spans = [math.prod(radices[k + 1 :]) for k in range(len(radices))]
        bases.append(start + gap * sum(spans))
        steps.extend(spans)
        levels.append(held)
        start += len(codes)
    numbers = (np.array(bases), np.array(steps), np.concatenate(levels))
    return Entries(*(array.astype(np.int32) for array in numbers))


class RowTables:
    """Tables of a model, and the lists of a block's samples.

    Parameters
    ----------
    block
        Valid samples.
    offsets
        int64 of shape (n_variables + 1,).
    log_prior, log_factors
        Floored logarithms, float64 of shapes (rank,) and (n_levels, rank).
    """

    def __init__(
        self, block: Block, offsets: IntArray, log_prior: FloatArray, log_factors: FloatArray
    ) -> None:
        from pmflib.kernels.em import make_row_kernels
        from pmflib.kernels.em_segments import THRESHOLD
        from pmflib.kernels.em_tables import fill_tables

        width, n_vectors, n_panels = choose_panels(log_prior.size)
        self.kernels = make_row_kernels(width, n_vectors, n_panels, plain=PLAIN)
        self.padded = width * n_vectors * n_panels
        sizes = tuple(np.diff(offsets).tolist())
        self.layout = choose_layout(block.n_rows, block.n_observed, sizes, self.padded)
        numbering = _number_entries(sizes, self.layout)
        n_entries = len(numbering.levels)
        self.log_scale = float(log_prior.max())
        log_maxima = log_factors.max(axis=1)
        scaled_prior, scaled = log_prior - self.log_scale, log_factors - log_maxima[:, None]
        prior, table = allocate(self.padded), allocate(n_entries * self.padded)
        prior[: log_prior.size] = np.maximum(np.exp(scaled_prior), THRESHOLD)
        self.log_scales = np.empty(n_entries)
        fill_tables(
            np.exp(scaled),
            log_maxima,
            numbering.levels,
            THRESHOLD,
            table.reshape(n_entries, self.padded),
            self.log_scales,
        )
        self.model = (table, prior, numbering.levels, scaled_prior, scaled)
        n_batch = max(1, min(MAX_BATCH, BATCH_BYTES // (self.padded * 8)) // 8) * 8
        self.work = (
            allocate((n_batch + 1) * self.padded),
            allocate(n_batch * n_panels * width),
            allocate(n_batch * n_panels),
            allocate(n_batch),
            allocate(n_batch),
        )
        self._block, self._offsets, self._numbering = block, offsets, numbering

    def iterate_lists(self) -> Iterator[tuple[slice, tuple[ListArray, IntArray, IntArray]]]:
        """Samples as lists of table rows, a chunk at a time; the arrays are overwritten by the next chunk."""
        block = self._block
        if not self.layout.group and isinstance(block, SparseBlock):
            # the levels held are what the block is made of
            yield slice(0, block.n_rows), (block.indices, block.indptr[:-1], block.indptr[1:])
            return
        list_rows, source, keys, longest = _choose_lists(
            block, self._offsets, self.layout, self._numbering
        )
        n_chunk = max(1, min(block.n_rows, CHUNK_ENTRIES // max(longest, 1)))
        # a few places beyond, which dense lists write and do not keep
        entries = np.empty(n_chunk * longest + 8, np.int32)
        starts, stops = np.empty(n_chunk, np.int64), np.empty(n_chunk, np.int64)
        for first in range(0, block.n_rows, n_chunk):
            n_rows = min(n_chunk, block.n_rows - first)
            list_rows(source, keys, first, n_rows, entries, starts, stops)
            yield slice(first, first + n_rows), (entries, starts[:n_rows], stops[:n_rows])


def choose_panels(rank: int) -> tuple[int, int, int]:
    """float64 per vector, vectors per panel, at most 8, and panels, so that a table row is padded by little."""
    width = WIDTH
    n_needed = -(-rank // width)
    n_panels = -(-n_needed // 8)
    return width, -(-n_needed // n_panels), n_panels


def allocate(size: int) -> FloatArray:
    """float64 of shape (size,), zeros, at an address that is a multiple of 64 bytes: no vector straddles two lines."""
    raw = np.zeros(size + 8)
    skipped = -raw.ctypes.data % 64 // 8
    return raw[skipped : skipped + size]


def _choose_lists(
    block: Block, offsets: IntArray, layout: Layout, numbering: Entries
) -> tuple[Callable[..., None], tuple[Any, ...], tuple[Any, ...], int]:
    """Function that lists table rows, the samples and keys it takes, and the length of the longest list."""
    from pmflib.kernels import em_lists

    bases, steps = numbering.bases, numbering.steps
    if isinstance(block, DenseBlock):
        if not layout.group:
            return em_lists.list_dense_held, (block.codes,), (offsets,), offsets.size - 1
        how = em_lists.make_dense_combined(layout.group, plain=PLAIN)
        wide = em_lists.arrange_keys(bases, steps, layout.group)
        codes = np.ascontiguousarray(block.codes)
        return how, (codes,), (bases, steps, *wide, layout.complete), bases.size
    source = (block.indptr, block.indices)
    sizes = np.diff(offsets)
    variables = np.repeat(np.arange(sizes.size), sizes)
    gap = int(not layout.complete)
    codes = np.arange(offsets[-1]) - offsets[variables] + gap
    blank = bases - gap * np.add.reduceat(steps, np.arange(0, steps.size, layout.group))
    keys = (
        blank.astype(np.int32),
        (variables // layout.group).astype(np.int32),
        (codes * steps[variables]).astype(np.int32),
    )
    return em_lists.list_sparse_combined, source, keys, bases.size


def add_block(
    block: Block,
    offsets: IntArray,
    log_prior: FloatArray,
    log_factors: FloatArray,
    level_mass: FloatArray,
    state_mass: FloatArray,
) -> float:
    """Add a block's masses to level_mass and state_mass, in place; returns its log-likelihood, nats.

    Parameters
    ----------
    block, offsets, log_prior, log_factors
        As for `RowTables`.
    level_mass, state_mass
        float64 of shapes (n_levels, rank) and (rank,).
    """
    from pmflib.kernels.em_tables import collect_masses

    tables = RowTables(block, offsets, log_prior, log_factors)
    levels, rank = tables.model[2], log_prior.size
    weighted = block.weights is not None
    weights = np.empty(0) if block.weights is None else block.weights
    mass, states = allocate(len(levels) * tables.padded), allocate(tables.padded)
    log_likelihood = 0.0
    for rows, lists in tables.iterate_lists():
        log_likelihood += tables.kernels.add_statistics(
            *lists, weights[rows], weighted, *tables.model, *tables.work, mass, states
        )
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
) -> None:
    """Fill the log-probability of every row, (n_rows,), and its posterior, (n_rows, rank), or (n_rows, 0) for none.

    Parameters
    ----------
    block, offsets, log_prior, log_factors
        As for `RowTables`.
    log_probs, posteriors
        float64; a row with nothing observed gets 0, and the prior.
    """
    tables = RowTables(block, offsets, log_prior, log_factors)
    scales = (tables.log_scales, tables.log_scale)
    for rows, lists in tables.iterate_lists():
        tables.kernels.score(
            *lists, *tables.model, *tables.work, *scales, log_probs[rows], posteriors[rows]
        )
