"""Effective sample sizes of weighted tables, from replicate weights or sampling units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.errors import StoreError
from pmflib.core.machine import count_processors
from pmflib.core.survey_design import join_lone_strata, vary_replicates, vary_totals
from pmflib.counting.conditional_tables import TablePlan, TableRequest, add_cells
from pmflib.counting.stored_pairs import merge_tables
from pmflib.schema import Schema
from pmflib.store.sample_blocks import (
    NO_REPLICATES,
    BlockReference,
    read_block,
    read_replicates,
    read_sampling_units,
    restore_units,
)


def find_replicate_sizes(
    blocks: Sequence[BlockReference],
    schema: Schema,
    requests: Sequence[TableRequest],
    factors: FloatArray,
    degrees: int,
) -> list[float]:
    """Compute the effective sample sizes of tables from the shares in each replicate.

    Parameters
    ----------
    blocks
        Blocks of samples with weights and replicate weights.
    schema, requests
        As for `pmflib.counting.conditional_tables.count_tables`.
    factors
        float64 of shape (n_replicates,): factor of each replicate's squared deviation in a variance.
    degrees
        Degrees of freedom of the variances.

    Returns
    -------
    For each request, the number n for which sum q (1 - q) / n equals the sum of the variances of the shares q, as in
    `pmflib.SurveyDesign`; infinite if the shares do not vary. The bits are equal for any number of threads.

    Raises
    ------
    StoreError
        If a partition is missing or damaged, or has other replicates.
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
    """Sum the weights of a block by cell, and those of each replicate: int64 (1 + n_replicates, n_cells)."""
    read, replicates = read_block(block), read_replicates(block)
    if replicates is None or replicates.shape[1] != n_replicates:
        raise StoreError(NO_REPLICATES)
    assert read.weights is not None
    total = np.zeros((1 + n_replicates, plan.n_cells), np.int64)
    weights = np.concatenate([read.weights.astype(np.int64)[None], replicates.T])
    add_cells(read, plan, weights, total)
    return total


def find_unit_sizes(
    blocks: Sequence[BlockReference], schema: Schema, requests: Sequence[TableRequest]
) -> list[float] | None:
    """Compute the effective sample sizes of tables from the totals of sampling units.

    Parameters
    ----------
    blocks
        Blocks of samples with weights.
    schema, requests
        As for `pmflib.counting.conditional_tables.count_tables`.

    Returns
    -------
    For each request, the number n for which sum q (1 - q) / n equals the sum of the variances of the shares q, by the
    linearised totals of units within strata; infinite if the shares do not vary. A stratum with a single unit is
    combined with another, as in `pmflib.SurveyDesign`. None if units are unknown, or there are fewer than two.

    Raises
    ------
    StoreError
        If a partition is missing or damaged.
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
        mine = np.flatnonzero((cells >= table.start) & (cells < table.cells.stop))
        by_unit = np.zeros((len(drawn), table.n_cells), np.int64)
        np.add.at(by_unit, (places[mine], cells[mine] - table.start), sums[mine])
        totals = by_unit.astype(np.float64)
        found.append(_find_size(totals.sum(axis=0), partial(vary_totals, totals, of_units=strata)))
    return found


def _add_units(block: BlockReference, plan: TablePlan) -> tuple[IntArray, IntArray] | None:
    """Return strata and units of a block, and its weights by unit and cell; None if its units are unknown.

    Strata and units are distinct hashes, int64 of shape (n_units, 2); units, cells and sums of weights are int64 of
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
        n_cells = table.n_cells
        by_unit = np.zeros(units.size * n_cells, np.int64)
        np.add.at(by_unit, of_row[rows] * n_cells + cells, weights[rows])
        filled = np.flatnonzero(by_unit)
        owners, places = np.divmod(filled, n_cells)
        tables.append(np.stack([units[owners], table.start + places, by_unit[filled]]))
    return np.unique(drawn, axis=0), np.concatenate(tables, axis=1)


def _find_size(totals: FloatArray, vary: Callable[[FloatArray], float]) -> float:
    """Compute the effective sample size of a weighted table from the sum of the variances of its shares."""
    total = float(totals.sum())
    if not total:
        return np.inf
    shares = totals / total
    spread = float((shares * (1 - shares)).sum())
    variance = vary(shares)
    return spread / variance if spread > 0 < variance else np.inf
