"""How many samples stored tables are worth where these have replicate weights: by the shares of each replicate."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.errors import StoreError
from pmflib.core.machine import count_processors
from pmflib.core.survey_design import vary_replicates
from pmflib.counting.stored_pairs import merge_tables
from pmflib.counting.table_requests import TablePlan, TableRequest
from pmflib.schema import Schema
from pmflib.store.sample_blocks import (
    NO_REPLICATES,
    BlockReference,
    read_block,
    read_replicates,
    restore_units,
)


def find_replicate_sizes(
    blocks: Sequence[BlockReference],
    schema: Schema,
    requests: Sequence[TableRequest],
    factors: FloatArray,
    degrees: int,
) -> list[float]:
    """Find how many independent samples tables are worth, in threads of this process.

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
    For each request the number n with sum q (1 - q) / n equal to the sum of the variances of the shares q by the
    replicates, as `pmflib.SurveyDesign` has it; infinite where these do not vary. The same bits for any number of
    threads.

    Raises
    ------
    StoreError
        If a partition is gone or damaged, or has other replicates.
    """
    plan = TablePlan.make(schema, requests)
    filled = restore_units(block for block in blocks if block.n_rows)
    with ThreadPoolExecutor(count_processors(), "replicates") as pool:
        parts = list(pool.map(partial(_add_up, plan=plan, n_replicates=factors.size), filled))
    if not parts:
        return [np.inf] * len(requests)
    sums = merge_tables(parts)
    tables = (plan.tables[request] for request in requests)
    return [_find_size(sums[:, table.start : table.stop], factors, degrees) for table in tables]


def _find_size(sums: IntArray, factors: FloatArray, degrees: int) -> float:
    """Effective samples of a table, of whose sums of weights the first are those of the whole."""
    whole, *each = sums.astype(np.float64)
    total = float(whole.sum())
    if not total:
        return np.inf
    shares = whole / total
    spread = float((shares * (1 - shares)).sum())
    variance = vary_replicates(np.array(each), shares, factors, degrees)
    return spread / variance if spread > 0 < variance else np.inf


def _add_up(block: BlockReference, plan: TablePlan, n_replicates: int) -> IntArray:
    """Sums of the weights of a block, and of those of each replicate, by cell: int64 (1 + n_replicates, n_cells)."""
    read, replicates = read_block(block), read_replicates(block)
    if replicates is None or replicates.shape[1] != n_replicates:
        raise StoreError(NO_REPLICATES)
    assert read.weights is not None
    codes = read.to_codes(plan.offsets)
    weights = np.column_stack([read.weights.astype(np.int64), replicates])
    total = np.zeros((1 + n_replicates, plan.n_cells), np.int64)
    for request, table in plan.tables.items():
        rows, cells = request.find_cells(codes, table.shape)
        if not rows.size:
            continue
        order = np.argsort(cells, kind="stable")
        edges = np.flatnonzero(np.append(True, np.diff(cells[order]) > 0))
        filled = table.start + cells[order][edges]
        total[:, filled] += np.add.reduceat(weights[rows[order]], edges, axis=0).T
    return total
