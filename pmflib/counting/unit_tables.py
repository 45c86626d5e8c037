"""How many samples stored tables are worth where these were drawn in units: by the totals of the units."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from pmflib.core.arrays import IntArray
from pmflib.core.machine import count_processors
from pmflib.core.survey_design import join_lone_strata, vary_totals
from pmflib.counting.table_requests import TablePlan, TableRequest
from pmflib.schema import Schema
from pmflib.store.sample_blocks import (
    BlockReference,
    read_block,
    read_sampling_units,
    restore_units,
)


@dataclass(frozen=True, eq=False)
class _UnitSums:
    """Units of some samples, and sums of their weights by unit and cell of all tables.

    ``drawn`` are hashes of stratum and unit, int64 of shape (n_units, 2), distinct; ``units``, ``cells`` and ``sums``
    are int64 of one length.
    """

    drawn: IntArray
    units: IntArray
    cells: IntArray
    sums: IntArray


def find_unit_sizes(
    blocks: Sequence[BlockReference], schema: Schema, requests: Sequence[TableRequest]
) -> list[float] | None:
    """Find how many independent samples tables are worth, in threads of this process.

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
        parts = list(pool.map(partial(_add_up, plan=plan), filled))
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or not known:
        return None
    drawn = np.unique(np.concatenate([part.drawn for part in known]), axis=0)
    drawn = drawn[np.argsort(drawn[:, 1], kind="stable")]
    if len(drawn) < 2:
        return None
    strata = join_lone_strata(np.unique(drawn[:, 0], return_inverse=True)[1].astype(np.int64))[0]
    units, cells, sums = (
        np.concatenate([getattr(part, name) for part in known])
        for name in ("units", "cells", "sums")
    )
    places = np.searchsorted(drawn[:, 1], units)
    found = []
    for request in requests:
        table = plan.tables[request]
        mine = np.flatnonzero((cells >= table.start) & (cells < table.stop))
        by_unit = np.zeros((len(drawn), table.stop - table.start), np.int64)
        np.add.at(by_unit, (places[mine], cells[mine] - table.start), sums[mine])
        found.append(_find_size(by_unit, strata))
    return found


def _find_size(by_unit: IntArray, strata: IntArray) -> float:
    totals = by_unit.astype(np.float64)
    total = float(totals.sum())
    if not total:
        return np.inf
    shares = totals.sum(axis=0) / total
    spread = float((shares * (1 - shares)).sum())
    variance = vary_totals(totals, shares, strata)
    return spread / variance if spread > 0 < variance else np.inf


def _add_up(block: BlockReference, plan: TablePlan) -> _UnitSums | None:
    """Sums of the weights of a block; None where its units are not known."""
    drawn = read_sampling_units(block)
    if drawn is None:
        return None
    read = read_block(block)
    assert read.weights is not None
    codes, weights = read.to_codes(plan.offsets), read.weights.astype(np.int64)
    units, of_row = np.unique(drawn[:, 1], return_inverse=True)
    cells, owners, sums = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for request, table in plan.tables.items():
        rows, cell = request.find_cells(codes, table.shape)
        n_cells = table.stop - table.start
        by_unit = np.zeros(units.size * n_cells, np.int64)
        np.add.at(by_unit, of_row[rows] * n_cells + cell, weights[rows])
        filled = np.flatnonzero(by_unit)
        cells.append(table.start + filled % n_cells)
        owners.append(units[filled // n_cells])
        sums.append(by_unit[filled])
    return _UnitSums(
        np.unique(drawn, axis=0),
        np.concatenate(owners),
        np.concatenate(cells),
        np.concatenate(sums),
    )
