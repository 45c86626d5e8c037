"""Rake the weights of a stored dataset to known margins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.cluster.clients import Client
from pmflib.cluster.item_maps import map_items
from pmflib.cluster.memory import MemoryPlan
from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.errors import PmfError
from pmflib.core.machine import find_memory_limit
from pmflib.core.replicate_weights import ReplicateWeights
from pmflib.core.survey_design import MOST_REPLICATES
from pmflib.core.weights import LIMIT, MOST_DECIMALS, WeightSums
from pmflib.counting.raking import find_total, rake_margins, rake_replicates
from pmflib.schema import Schema
from pmflib.schema.margins import Margin
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_file_steps, list_layers, read_content, write_layers
from pmflib.store.raked_weights import RAKING, RakedWeights
from pmflib.store.sample_blocks import BlockReference, add_sums, group_blocks, read_block, sum_units
from pmflib.store.sample_designs import StoredDesign, StoredReplicates


def rake_dataset(
    client: Client,
    store: Store,
    dataset: Reference,
    schema: Schema,
    margins: Sequence[Margin],
    bounds: tuple[float, float] | None,
    folder: Path,
) -> dict[str, Any]:
    """Write a dataset of the same samples with weights raked to known margins.

    Samples are read twice, and none is written: the dataset has a factor for each cell of the margins. Replicates,
    given or of sampling units in at most 200 groups, are raked as well.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread; the factors have the same bits.
    store, dataset, schema
        Dataset with samples in a store, and its variables.
    margins, bounds
        Known margins, and bounds of the factors: see `pmflib.rake`. Samples without weights have weight 1 before.
    folder
        Empty folder.

    Returns
    -------
    Account of the rows with the sums of the raked weights, plain JSON types; "raking" has shares before and after.

    Raises
    ------
    PmfError
        If margins contradict each other, cannot be reached within the bounds, or have too many cells.
    SchemaError
        If samples have a level to which the margins give nothing, or lack a level to which they give something.
    MemoryPlanError
        If the factors of all replicates would not fit in memory.
    StoreError
        If a partition is gone or damaged.
    """
    layers = list_layers(store, dataset)
    blocks = [block for layer in layers for block in layer.blocks]
    design, before = StoredDesign.open(store, dataset), add_sums(blocks)
    drawn = None if design is None else design.reduce(blocks, MOST_REPLICATES)
    decimals = before.decimals if before else schema.weight_decimals
    decimals = MOST_DECIMALS if decimals is None else decimals
    raking = RakedWeights(
        schema.offsets,
        tuple(each.positions for each in margins),
        tuple(each.shares.shape for each in margins),
        0 if before else 10**decimals,
    )
    if np.prod([float(size) for size in raking.sizes]) >= LIMIT:
        raise PmfError(f"{len(margins)} margins have more than 2**63 cells; leave margins out")
    groups = group_blocks(blocks)
    keys, sums = _merge_cells(map_items(client, _sum_cells, groups, raking, drawn))
    cells = np.stack(np.unravel_index(keys, raking.sizes), axis=1)
    whole = rake_margins(sums[:, :1], cells, margins, bounds)
    factors, units = whole.factors[:, 0], sums[:, 0]
    total = find_total(margins)
    total = float(units.sum()) if total is None else total * 10.0**decimals
    raking = replace(raking, keys=keys, factors=factors * (total / (units @ factors)))
    record: ReplicateWeights | None = None
    if drawn is not None:
        record = drawn.record
        by_replicate = sums[:, 1:]
        if record.strata is not None:
            by_replicate = _leave_units_out(units, by_replicate, record.strata)
            assert drawn.hashes is not None
            assert drawn.columns is not None
            raking = replace(
                raking, hashes=drawn.hashes, columns=drawn.columns, strata=record.strata
            )
        spread, made = rake_replicates(by_replicate, cells, margins, bounds, whole, record)
        raking = replace(raking, by_replicate=total * spread)
        record = replace(made, factors=record.refit_factors, method=f"raked {record.method}")
    found = [
        each for part in map_items(client, _sum_raked, groups, raking, decimals) for each in part
    ]
    of_block = dict(zip(map(id, blocks), found, strict=True))
    layers = [
        replace(layer, blocks=tuple(replace(x, weights=of_block[id(x)]) for x in layer.blocks))
        for layer in layers
    ]
    sums_after = add_sums(block for layer in layers for block in layer.blocks)
    assert sums_after is not None
    facts = {
        "margins": [_describe(each, cells[:, n], units, factors) for n, each in enumerate(margins)],
        "factors": [float(factors.min()), float(factors.max())],
        "effective": [
            before.n_effective if before else float(sum(x.n_rows for x in blocks)),
            sums_after.n_effective,
        ],
    }
    content, replicates = read_content(store, dataset), None
    if record is not None:
        numbers = {"factors": record.factors.tolist(), "degrees": record.degrees}
        replicates = {**numbers, "method": record.method, "notes": list(record.notes)}
    made_of = {"replicates": replicates, **facts}
    files = list_file_steps(store, dataset)
    write_layers(folder, layers, content["account"], files, content["origin"], made_of)
    raking.write(folder / RAKING)
    return {**content["account"], "weights": sums_after.to_json(), "raking": facts}


def _sum_cells(
    group: Sequence[BlockReference], raking: RakedWeights, drawn: StoredReplicates | None
) -> tuple[IntArray, FloatArray]:
    """Sum the weights and replicate weights, or those by column of sampling units, of some blocks by cell.

    Returns
    -------
    Cells, int64 of shape (n_cells,), sorted, and sums, float64 of shape (n_cells, 1 + n_columns).
    """
    parts = []
    for reference in group:
        block = read_block(reference)
        keys, of_row = np.unique(raking.find_keys(block), return_inverse=True)
        units, n_columns = raking.read_units(block), 0 if drawn is None else drawn.record.n_columns
        sums = np.zeros((keys.size, 1 + n_columns))
        sums[:, 0] = np.bincount(of_row, units, keys.size)
        if drawn is not None:
            weights = drawn.read(reference)
            if drawn.record.is_sparse:
                np.add.at(sums, (of_row, 1 + weights), units)
            else:
                np.add.at(sums[:, 1:], of_row, weights)
        parts.append((keys, sums))
    return _merge_cells(parts)


def _merge_cells(parts: Sequence[tuple[IntArray, FloatArray]]) -> tuple[IntArray, FloatArray]:
    """Add up sums by cell, in the order of the parts."""
    keys = np.unique(np.concatenate([part for part, _ in parts]))
    n_columns = parts[0][1].shape[1]
    MemoryPlan(
        "raking",
        {f"weights of {n_columns} replicates in {keys.size:,} cells": 48 * keys.size * n_columns},
        "Leave margins out, merge levels, or take a design with fewer replicates.",
    ).check(find_memory_limit())
    sums = np.zeros((keys.size, n_columns))
    for mine, values in parts:
        sums[np.searchsorted(keys, mine)] += values
    return keys, sums


def _leave_units_out(units: FloatArray, by_column: FloatArray, strata: IntArray) -> FloatArray:
    """Sums by cell of the replicates that leave a unit out, as `ReplicateWeights.leave_out` weighs the others."""
    n_each = np.bincount(strata)[strata]
    of_stratum = np.zeros((units.size, int(strata.max()) + 1))
    np.add.at(of_stratum.T, strata, by_column.T)
    found: FloatArray = units[:, None] + (of_stratum[:, strata] - by_column * n_each) / (n_each - 1)
    # a cell that only this unit has is empty, but for rounding
    return np.where(found > 1e-9 * units[:, None], found, 0.0)


def _sum_raked(
    group: Sequence[BlockReference], raking: RakedWeights, decimals: int
) -> list[WeightSums]:
    """Sums of the raked weights of some blocks."""
    return [sum_units(raking.weigh(read_block(x)).astype(np.int64), decimals) for x in group]


def _describe(
    margin: Margin, levels: IntArray, units: FloatArray, factors: FloatArray
) -> Mapping[str, Any]:
    """Shares of the levels of a margin: known, and among the samples with a value before and after raking."""
    size = margin.shares.size
    found = []
    for weights in (units, units * factors):
        sums = np.bincount(levels, weights, size + 1)[:-1]
        found.append((sums / sums.sum()).tolist())
    names = [margin.name_cell(cell) for cell in range(size)]
    known = margin.shares.ravel().tolist()
    return {"levels": names, "known": known, "before": found[0], "after": found[1]}
