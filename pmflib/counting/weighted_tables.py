"""Tables of samples with weights: shares of the weights, and how many independent samples they are worth.

A table is counted with an axis of weights: ones, the samples' own weights and their squares, or the own weights and
those of replicates. Sums are of whole units, and are the same in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.blocks import Block
from pmflib.core.errors import StoreError
from pmflib.core.machine import count_processors
from pmflib.core.survey_design import join_lone_strata, vary_replicates, vary_totals
from pmflib.core.weights import WeightSums
from pmflib.counting.stored_pairs import merge_tables
from pmflib.counting.table_requests import TablePlan, TableRequest
from pmflib.schema import Schema
from pmflib.store.sample_blocks import (
    NO_REPLICATES,
    BlockReference,
    read_block,
    read_replicates,
    read_sampling_units,
    restore_units,
)

SQUARES_BITS = 61
"""Bits that sums of squared weights are kept with."""
FEW_WEIGHTS = 40
"""Weights of a sample up to which they are added one by one; rows with more are sorted by cell first."""


@dataclass(frozen=True, eq=False)
class WeightedTables:
    """Tables of sums of weights and of their squares, beside those of the numbers of samples.

    Parameters
    ----------
    sums
        int64 tables: weights of the samples of each cell, in units.
    squares
        int64 tables: squares of these weights, times 2 ** shift, each rounded.
    shift
        Such that squares of all samples fit into 62 bits: their sums are the same in any order.
    totals
        What the weights of all samples counted add up to.
    sizes
        Independent samples that each table is worth by its sampling units or replicates, infinite where their totals do
        not vary; None where these are not known.
    """

    sums: list[IntArray]
    squares: list[IntArray]
    shift: int
    totals: WeightSums
    sizes: list[float] | None = None

    def to_samples(self, tables: Sequence[IntArray], n_rows: int) -> tuple[list[Any], int]:
        """Tables in effective samples, and the effective number of all so many rows.

        A table has the shares of the weights, and the number of independent samples whose shares would vary as much:
        by the linearised variance of a ratio, added up over the cells; of units, where these are known. It is another
        one for every table, and never above the number of samples in it. Equal weights, without units, give the tables
        of samples, int64.

        References
        ----------
        Kish (1965), Survey Sampling, for design effects; Wolter (2007), Introduction to Variance Estimation, chapter 6.
        """
        if self.sizes is None and self.totals.are_equal(n_rows):
            return list(tables), n_rows
        worth = self._find_worth(tables)
        found = [
            each * (n / max(int(each.sum()), 1)) for each, n in zip(self.sums, worth, strict=True)
        ]
        return found, round(self.totals.n_effective)

    def find_effects(self, tables: Sequence[IntArray]) -> list[float]:
        """Samples that each table is worth, for each that its rows are worth by weights alone (Kish); 1 of no rows."""
        found = []
        for sums, squares, n in zip(self.sums, self.squares, self._find_worth(tables), strict=True):
            squared = math.ldexp(float(squares.sum()), -self.shift)
            found.append(n * squared / float(sums.sum()) ** 2 if n else 1.0)
        return found

    def _find_worth(self, tables: Sequence[IntArray]) -> list[float]:
        sizes = [None] * len(self.sums) if self.sizes is None else self.sizes
        each = zip(tables, self.sums, self.squares, sizes, strict=True)
        return [_find_worth(*one, self.shift) for one in each]


def _find_worth(
    rows: IntArray, sums: IntArray, squares: IntArray, size: float | None, shift: int
) -> float:
    """Number of samples that a table is worth: see `WeightedTables.to_samples`."""
    total = float(sums.sum())
    if not total:
        return 0.0
    shares, squared = sums / total, np.ldexp(squares.astype(np.float64), -shift)
    spread = float((shares * (1 - shares)).sum())
    variance = float((squared * (1 - 2 * shares) + shares**2 * squared.sum()).sum()) / total**2
    # where all are in one cell, their number is Kish's
    n = spread / variance if spread > 0 < variance else total**2 / float(squared.sum())
    if size is not None and math.isfinite(size):
        n = size
    return min(n, float(rows.sum()))


def square_weights(weights: FloatArray, shift: int) -> IntArray:
    """Ones, weights in units, and their squares times 2 ** shift: int64 of shape (n_rows, 3), for `add_weights`."""
    squares = np.rint(np.ldexp(weights**2, shift))
    return np.stack([np.ones(len(weights)), weights, squares], axis=1).astype(np.int64)


def add_weights(block: Block, plan: TablePlan, weights: IntArray, total: IntArray) -> None:
    """Add weights of samples to the cells of all tables, in place.

    Parameters
    ----------
    block
        Samples.
    plan
        What is counted.
    weights
        int64 of shape (n_rows, n_weights).
    total
        int64 of shape (n_weights, n_cells).
    """
    for table, rows, cells in plan.find_cells(block):
        sums = total[:, table.cells]
        if len(sums) <= FEW_WEIGHTS:
            for each, column in zip(sums, weights.T, strict=True):
                np.add.at(each, cells, column[rows])
            continue
        order = np.argsort(cells, kind="stable")
        edges = np.flatnonzero(np.diff(cells[order], prepend=-1))
        sums[:, cells[order][edges]] += np.add.reduceat(weights[rows[order]], edges, axis=0).T


def find_replicate_sizes(
    blocks: Sequence[BlockReference],
    schema: Schema,
    requests: Sequence[TableRequest],
    factors: FloatArray,
    degrees: int,
) -> list[float]:
    """Find how many independent samples tables are worth by the shares of each replicate.

    Parameters
    ----------
    blocks
        Blocks of samples with weights and replicate weights.
    schema, requests
        As for `pmflib.counting.conditional_tables.count_tables`.
    factors
        float64 of shape (n_replicates,): share of the squared departure of each replicate in a variance.
    degrees
        Degrees of freedom of variances.

    Returns
    -------
    For each request the number n with sum q (1 - q) / n equal to the sum of the variances of the shares q, as
    `pmflib.SurveyDesign` has it; infinite where these do not vary. The same bits for any number of threads.

    Raises
    ------
    StoreError
        If a partition is gone or damaged, or has other replicates.
    """
    plan = TablePlan.make(schema, requests)
    filled = restore_units(block for block in blocks if block.n_rows)
    with ThreadPoolExecutor(count_processors(), "replicates") as pool:
        add = partial(_add_replicates, plan=plan, n_replicates=factors.size)
        parts = list(pool.map(add, filled))
    if not parts:
        return [np.inf] * len(requests)
    whole, *each = merge_tables(parts).astype(np.float64)
    by_replicate = np.array(each)
    found = []
    for request in requests:
        cells = plan.tables[request].cells
        vary = partial(vary_replicates, by_replicate[:, cells], factors=factors, degrees=degrees)
        found.append(_find_size(whole[cells], vary))
    return found


def _add_replicates(block: BlockReference, plan: TablePlan, n_replicates: int) -> IntArray:
    """Sums of the weights of a block, and of those of each replicate, by cell: int64 (1 + n_replicates, n_cells)."""
    read, replicates = read_block(block), read_replicates(block)
    if replicates is None or replicates.shape[1] != n_replicates:
        raise StoreError(NO_REPLICATES)
    assert read.weights is not None
    total = np.zeros((1 + n_replicates, plan.n_cells), np.int64)
    add_weights(read, plan, np.column_stack([read.weights.astype(np.int64), replicates]), total)
    return total


def find_unit_sizes(
    blocks: Sequence[BlockReference], schema: Schema, requests: Sequence[TableRequest]
) -> list[float] | None:
    """Find how many independent samples tables are worth by the totals of sampling units.

    Parameters
    ----------
    blocks
        Blocks of samples with weights.
    schema, requests
        As for `pmflib.counting.conditional_tables.count_tables`.

    Returns
    -------
    For each request the number n with sum q (1 - q) / n equal to the sum of the variances of the shares q by the
    linearised totals of units within strata; infinite where these do not vary. A stratum of a single unit is taken with
    another, as `pmflib.SurveyDesign` does. None where units are not known, or there are fewer than two.

    Raises
    ------
    StoreError
        If a partition is gone or damaged.
    """
    plan = TablePlan.make(schema, requests)
    filled = restore_units(block for block in blocks if block.n_rows)
    with ThreadPoolExecutor(count_processors(), "units") as pool:
        parts = list(pool.map(partial(_add_units, plan=plan), filled))
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or not known:
        return None
    drawn = np.unique(np.concatenate([pairs for pairs, _ in known]), axis=0)
    drawn = drawn[np.argsort(drawn[:, 1], kind="stable")]
    if len(drawn) < 2:
        return None
    strata = join_lone_strata(np.unique(drawn[:, 0], return_inverse=True)[1].astype(np.int64))[0]
    units, cells, sums = np.concatenate([table for _, table in known], axis=1)
    places = np.searchsorted(drawn[:, 1], units)
    found = []
    for request in requests:
        table = plan.tables[request]
        mine = np.flatnonzero((cells >= table.start) & (cells < table.stop))
        by_unit = np.zeros((len(drawn), table.stop - table.start), np.int64)
        np.add.at(by_unit, (places[mine], cells[mine] - table.start), sums[mine])
        totals = by_unit.astype(np.float64)
        found.append(_find_size(totals.sum(axis=0), partial(vary_totals, totals, of_units=strata)))
    return found


def _add_units(block: BlockReference, plan: TablePlan) -> tuple[IntArray, IntArray] | None:
    """Strata and units of a block, and its weights by unit and cell; None where its units are not known.

    Strata and units are hashes, int64 of shape (n_units, 2), distinct; units, cells and sums of weights are int64 of
    shape (3, n_filled).
    """
    drawn = read_sampling_units(block)
    if drawn is None:
        return None
    read = read_block(block)
    assert read.weights is not None
    weights = read.weights.astype(np.int64)
    units, of_row = np.unique(drawn[:, 1], return_inverse=True)
    tables = [np.empty((3, 0), np.int64)]
    for table, rows, cells in plan.find_cells(read):
        n_cells = table.stop - table.start
        by_unit = np.zeros(units.size * n_cells, np.int64)
        np.add.at(by_unit, of_row[rows] * n_cells + cells, weights[rows])
        filled = np.flatnonzero(by_unit)
        owners, places = np.divmod(filled, n_cells)
        tables.append(np.stack([units[owners], table.start + places, by_unit[filled]]))
    return np.unique(drawn, axis=0), np.concatenate(tables, axis=1)


def _find_size(totals: FloatArray, vary: Callable[[FloatArray], float]) -> float:
    """Independent samples that a table of sums of weights is worth, by the sum of the variances of its shares."""
    total = float(totals.sum())
    if not total:
        return np.inf
    shares = totals / total
    spread = float((shares * (1 - shares)).sum())
    variance = vary(shares)
    return spread / variance if spread > 0 < variance else np.inf
