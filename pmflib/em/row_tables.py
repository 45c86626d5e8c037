"""What the row kernels need for one block under one model: tables, lists and work space."""

from __future__ import annotations

import math
from functools import lru_cache, reduce

import numpy as np

from pmflib.arrays import FloatArray, IntArray, StrataArray
from pmflib.blocks import Block
from pmflib.em.row_lists import Layout, iterate_lists, number_entries

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
VECTOR_COSTS = {8: 1.0, 4: 0.65, 2: 0.5}
"""Work on a vector by its number of float64: 8 are one AVX-512 register, two of AVX2, four of NEON."""
SHORT_ROW = 16
"""States up to which the largest value of a row is found column by column."""
LOG_2 = math.log(2.0)


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
        from pmflib.kernels.em_arguments import Tables, Work
        from pmflib.kernels.em_choice import choose_row_kernels
        from pmflib.kernels.em_segments import THRESHOLD
        from pmflib.kernels.em_tables import fill_tables

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
        """Allocate priors, table, and work space as `pmflib.kernels.em_arguments` has it."""
        n_batch = max(1, min(MAX_BATCH, BATCH_BYTES // (self.padded * 8)) // 8) * 8
        sums = (n_batch * n_panels * width, n_batch * n_panels, n_batch, n_batch)
        tables = (n_strata * self.padded, n_entries * self.padded, (n_batch + 1) * self.padded)
        return allocate(*tables, *sums)


def find_maxima(values: FloatArray) -> FloatArray:
    """Largest value of each row; NumPy reduces short rows several times slower than columns."""
    return reduce(np.maximum, values.T) if values.shape[1] <= SHORT_ROW else values.max(axis=1)


def choose_panels(rank: int) -> tuple[int, int, int]:
    """float64 per vector, vectors per panel, at most 8, and panels: the least work for a table row."""
    width = min(VECTOR_COSTS, key=lambda width: VECTOR_COSTS[width] * -(-rank // width))
    n_needed = -(-rank // width)
    n_panels = -(-n_needed // 8)
    return width, -(-n_needed // n_panels), n_panels


def allocate(*sizes: int) -> tuple[FloatArray, ...]:
    """float64 of shape (size,) each, zeros, at multiples of 64 bytes: no vector straddles two lines of a cache."""
    ends = np.cumsum([-(-size // 8) * 8 for size in sizes]).tolist()
    raw = np.zeros(ends[-1] + 8)
    skipped = -raw.__array_interface__["data"][0] % 64 // 8
    starts = [0, *ends[:-1]]
    return tuple(
        raw[skipped + start : skipped + start + size]
        for start, size in zip(starts, sizes, strict=True)
    )


def add_block(
    block: Block,
    offsets: IntArray,
    log_prior: FloatArray,
    log_factors: FloatArray,
    level_mass: FloatArray,
    state_mass: FloatArray,
    strata: StrataArray | None = None,
) -> float:
    """Add a block's masses to level_mass and state_mass, in place; returns its log-likelihood, nats.

    Parameters
    ----------
    block, offsets, log_prior, log_factors
        As for `RowTables`.
    level_mass, state_mass
        float64 of shapes (n_levels, rank) and (rank,).
    strata
        int32 of shape (n_rows,): which of several priors each row has; None where there is one.
    """
    from pmflib.kernels.em_arguments import ALIKE, Lists, Masses
    from pmflib.kernels.em_tables import collect_masses

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
    """Fill the log-probability of every row, (n_rows,), and its posterior, (n_rows, rank), or (n_rows, 0) for none.

    Parameters
    ----------
    block, offsets, log_prior, log_factors
        As for `RowTables`.
    log_probs, posteriors
        float64; a row with nothing observed gets 0, and the prior.
    strata
        As for `add_block`.
    """
    from pmflib.kernels.em_arguments import ALIKE, Lists

    tables = RowTables(block, offsets, log_prior, log_factors)
    scales = (tables.log_scales, tables.log_scale)
    for rows, lists in iterate_lists(block, offsets, tables.layout, tables.numbering):
        of_rows = Lists(*lists, ALIKE if strata is None else strata[rows])
        filled = (log_probs[rows], posteriors[rows])
        tables.kernels.score(of_rows, tables.model, tables.work, *scales, *filled)
