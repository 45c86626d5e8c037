"""Effective numbers of samples behind tables of weighted samples, by the replicate weights of their design."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.machine import count_processors
from pmflib.core.replicate_weights import ReplicateWeights
from pmflib.counting.conditional_tables import TablePlan, TableRequest, add_cells
from pmflib.counting.stored_pairs import merge_tables
from pmflib.schema import Schema
from pmflib.store.sample_blocks import BlockReference, read_block, restore_units
from pmflib.store.sample_designs import StoredDesign, StoredReplicates


def find_table_sizes(
    blocks: Sequence[BlockReference],
    schema: Schema,
    requests: Sequence[TableRequest],
    design: StoredDesign,
) -> list[float] | None:
    """Find the number of independent samples that would have shares as uncertain as those of each table.

    Parameters
    ----------
    blocks
        All blocks of the dataset, of samples with weights.
    schema, requests
        As for `pmflib.counting.conditional_tables.count_tables`.
    design
        Design of the samples.

    Returns
    -------
    For each request the number n with sum q (1 - q) / n equal to the sum of the variances of the shares q, as in
    `pmflib.SurveyDesign`; infinite if these do not vary. None if all samples are of one sampling unit. The same bits
    for any number of threads.

    Raises
    ------
    StoreError
        If a partition is gone or damaged, or has other replicates.
    """
    drawn = design.reduce(blocks)
    if drawn is None:
        return None
    plan = TablePlan.make(schema, requests)
    filled = restore_units(block for block in blocks if block.n_rows)
    if not filled:
        return [np.inf] * len(requests)
    with ThreadPoolExecutor(count_processors(), "replicates") as pool:
        if drawn.record.strata is None:
            parts = list(pool.map(partial(_add_replicates, plan=plan, drawn=drawn), filled))
            by_column = merge_tables(parts).astype(np.float64)
        else:
            units = list(pool.map(partial(_add_units, plan=plan, drawn=drawn), filled))
            columns, cells, sums = np.concatenate(units, axis=1)
    found = []
    for request in requests:
        table = plan.tables[request]
        if drawn.record.strata is None:
            whole, own = by_column[0, table.cells], by_column[1:, table.cells]
        else:
            mine = np.flatnonzero((cells >= table.start) & (cells < table.cells.stop))
            totals = np.zeros((drawn.record.n_columns, table.n_cells), np.int64)
            np.add.at(totals, (columns[mine], cells[mine] - table.start), sums[mine])
            own = totals.astype(np.float64)
            whole = own.sum(axis=0)
        found.append(_find_size(whole, own, drawn.record))
    return found


def _add_replicates(block: BlockReference, plan: TablePlan, drawn: StoredReplicates) -> IntArray:
    """Sums of the weights of a block, and of those of each replicate, by cell: int64 (1 + n_replicates, n_cells)."""
    read, replicates = read_block(block), drawn.read(block)
    assert read.weights is not None
    total = np.zeros((1 + drawn.record.n_columns, plan.n_cells), np.int64)
    weights = np.concatenate([read.weights.astype(np.int64)[None], replicates.T])
    add_cells(read, plan, weights, total)
    return total


def _add_units(block: BlockReference, plan: TablePlan, drawn: StoredReplicates) -> IntArray:
    """Column, cell and sum of weights of each cell of a sampling unit that has samples: int64 of shape (3, n_held)."""
    columns, of_row = np.unique(drawn.read(block), return_inverse=True)
    read = read_block(block)
    assert read.weights is not None
    weights = read.weights.astype(np.int64)
    tables = [np.empty((3, 0), np.int64)]
    for table, rows, cells in plan.find_cells(read):
        n_cells = table.n_cells
        by_column = np.zeros(columns.size * n_cells, np.int64)
        np.add.at(by_column, of_row[rows] * n_cells + cells, weights[rows])
        filled = np.flatnonzero(by_column)
        owners, places = np.divmod(filled, n_cells)
        tables.append(np.stack([columns[owners], table.start + places, by_column[filled]]))
    return np.concatenate(tables, axis=1)


def _find_size(whole: FloatArray, by_column: FloatArray, record: ReplicateWeights) -> float:
    """Effective number of samples of a table, given its sums of weights in the whole sample and by column."""
    total = float(whole.sum())
    if not total:
        return np.inf
    shares = whole / total
    spread = float((shares * (1 - shares)).sum())
    variance = record.vary_shares(by_column, shares)
    return spread / variance if spread > 0 < variance else np.inf
