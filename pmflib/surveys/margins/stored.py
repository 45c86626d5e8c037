"""Rake the weights of a stored dataset to known margins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.errors import PmfError, SourceError
from pmflib.base.machine import find_memory_limit
from pmflib.base.replicate_weights import ReplicateWeights
from pmflib.base.variance import MOST_REPLICATES
from pmflib.base.weights import LIMIT, MOST_DECIMALS, WeightSums
from pmflib.cluster.clients import Client
from pmflib.cluster.item_maps import map_items
from pmflib.cluster.memory import MemoryPlan
from pmflib.schema import Schema
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_file_steps, list_layers, read_content, write_layers
from pmflib.store.sample_blocks import (
    BlockReference,
    add_sums,
    group_blocks,
    read_block,
    sum_units,
)
from pmflib.store.stored_variance import StoredReplicates, open_variance
from pmflib.surveys.margins.margins import Margin
from pmflib.surveys.margins.samples import find_total, rake_margins, rake_replicates
from pmflib.surveys.margins.stored_weights import RAKING, RakedWeights


def rake_dataset(
    client: Client,
    store: Store,
    dataset: Reference,
    schema: Schema,
    margins: Sequence[Margin],
    bounds: tuple[float, float] | None,
    folder: Path,
) -> Mapping[str, Any]:
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
        Known margins, and bounds of the factors: see `pmflib.surveys.rake`. Samples without weights have weight 1
        before.
    folder
        Empty folder.

    Returns
    -------
    Account of the rows with the sums of the raked weights, plain JSON types; "raking" has the smallest and largest
    factor, and for each level its share in the population, and in the samples with a value before and after.

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
    layers, content = list_layers(store, dataset), read_content(store, dataset)
    blocks = [block for layer in layers for block in layer.blocks]
    design, before = open_variance(store, dataset), add_sums(blocks)
    drawn = None if design is None else design.reduce(blocks, MOST_REPLICATES)
    decimals = MOST_DECIMALS if schema.weight_decimals is None else schema.weight_decimals
    decimals = decimals if before is None else before.decimals
    raking = RakedWeights(
        tuple(each.positions for each in margins),
        tuple(each.shares.shape for each in margins),
        10**decimals,
        schema.offsets,
    )
    if np.prod([float(size) for size in raking.sizes]) >= LIMIT:
        raise PmfError(f"{len(margins)} margins have more than 2**63 cells; leave margins out")
    if drawn is not None and drawn.record.strata is not None:
        of_units: Any = {"hashes": drawn.hashes, "columns": drawn.columns}
        raking = replace(raking, strata=drawn.record.strata, **of_units)
    groups = group_blocks(blocks)
    keys, sums = _merge_cells(map_items(client, _sum_cells, groups, raking))
    cells = np.stack(np.unravel_index(keys, raking.sizes), axis=1)
    whole = rake_margins(sums[:, :1], cells, margins, bounds)
    known, raked = find_total(margins), float(sums[:, 0] @ whole.factors[:, 0])
    total = float(sums[:, 0].sum()) if known is None else known * 10.0**decimals
    raking = replace(raking, keys=keys, factors=whole.factors[:, 0] * (total / raked))
    replicates = None
    if drawn is not None:
        if (empty := np.flatnonzero(sums.sum(axis=0) == 0)).size:
            raise SourceError(
                f"source.replicates: replicate number {empty[0]} gives every sample weight 0; remove its column"
            )
        factors, made = rake_replicates(sums[:, 1:], cells, margins, bounds, whole, drawn.record)
        raking = replace(raking, by_replicate=total * factors)
        method, factors_of = f"raked {made.method}", made.refit_factors.tolist()
        replicates = asdict(replace(made, strata=None, method=method)) | {"factors": factors_of}
    weights = (x for part in map_items(client, _sum_raked, groups, raking, decimals) for x in part)
    for place, layer in enumerate(layers):
        weighed = tuple(replace(block, weights=next(weights)) for block in layer.blocks)
        layers[place] = replace(layer, blocks=weighed)
    files, origin = list_file_steps(store, dataset), content["origin"]
    write_layers(
        folder, layers, content["account"], files, origin, {RAKING: {"replicates": replicates}}
    )
    raking.write(folder / RAKING)
    after = add_sums(block for layer in layers for block in layer.blocks)
    assert after is not None
    levels = []
    for margin, of_cells in zip(margins, cells.T, strict=True):
        shares = [margin.shares.ravel()]
        for weights_of in (sums[:, 0], sums[:, 0] * raking.factors):
            found = np.bincount(of_cells, weights_of, margin.shares.size + 1)[:-1]
            shares.append(found / found.sum())
        names = map(margin.name_cell, range(margin.shares.size))
        levels += [
            [name, *each] for name, each in zip(names, np.stack(shares, 1).tolist(), strict=True)
        ]
    range_of = [float(whole.factors.min()), float(whole.factors.max())]
    facts = {"levels": levels, "factors": range_of}
    return {**content["account"], "weights": after.to_json(), "raking": facts}


def open_raked(described: Mapping[str, Any]) -> StoredReplicates | None:
    """Open the raked replicate weights of a dataset; None if its samples had weights alone, or none, before."""
    raked = described["raking"]["replicates"]
    if raked is None:
        return None
    read = {"factors": np.array(raked["factors"]), "notes": tuple(raked["notes"])}
    return StoredReplicates(ReplicateWeights(**raked | read))


def _sum_cells(
    group: Sequence[BlockReference], raking: RakedWeights
) -> tuple[IntArray, FloatArray]:
    """Sum the weights and replicate weights of some blocks by cell: see `_merge_cells`."""
    parts = []
    for reference in group:
        block, spread = raking.read_unraked(reference)
        weights = np.column_stack([raking.read_units(block), spread])
        found = raking.find_keys(block)
        order = np.argsort(found, kind="stable")
        keys, starts = np.unique(found[order], return_index=True)
        parts.append((keys, np.add.reduceat(weights[order], starts, axis=0)))
    return _merge_cells(parts)


def _merge_cells(parts: Sequence[tuple[IntArray, FloatArray]]) -> tuple[IntArray, FloatArray]:
    """Add up sums by cell in the order of the parts: cells, int64 (n_cells,), sorted, and sums (n_cells, n_sums)."""
    keys = np.unique(np.concatenate([part for part, _ in parts]))
    sums = np.zeros((keys.size, parts[0][1].shape[1]))
    needed = {f"sums of {sums.shape[1]} weights in {keys.size:,} cells": 6 * sums.nbytes}
    remedy = "Leave margins out, merge levels, or take a design with fewer replicates."
    MemoryPlan("raking", needed, remedy).check(find_memory_limit())
    for mine, values in parts:
        sums[np.searchsorted(keys, mine)] += values
    return keys, sums


def _sum_raked(
    group: Sequence[BlockReference], raking: RakedWeights, decimals: int
) -> list[WeightSums]:
    """Sum the raked weights of each block."""
    return [sum_units(raking.weigh(read_block(x)).astype(np.int64), decimals) for x in group]
