"""Scores of stored samples, a Parquet file for each partition of their dataset."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from pmflib.cluster.clients import Client
from pmflib.cluster.item_maps import map_items
from pmflib.model.measures import TargetSums
from pmflib.model.score_tables import TableMaker, list_samples
from pmflib.store.caches import find_local_path, name_for_workers
from pmflib.store.checkpoints import find_out, gather_in, hand_in, has_arrived
from pmflib.store.dataset import Layer
from pmflib.store.sample_blocks import read_blocks, read_origins
from pmflib.store.table_files import ACCOUNT, write_options


def score_stored(
    client: Client,
    layers: Sequence[Layer],
    scorer: TableMaker,
    folder: Path,
    on_partition: Callable[[int, int], None] | None = None,
) -> tuple[int, dict[str, dict[str, float]]]:
    """Score every stored sample.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread.
    layers
        Partitions of a dataset.
    scorer
        The model, and what it is to compute.
    folder
        Existing folder, seen by all workers; gets one Parquet file per partition, in order, with the columns sample and
        row, and those of `TableScorer.score`. Files that an earlier call finished there stay.
    on_partition
        Called with the number of partitions done and their total, each time one is done.

    Returns
    -------
    Number of samples; and for each target the measures of `TargetSums.measure`.

    Raises
    ------
    StoreError
        If a partition is gone or damaged.
    """
    name = name_for_workers(folder)
    items = [(layer, f"{name}/part-{index:05}.parquet") for index, layer in enumerate(layers)]
    scored = map_items(
        client,
        _score_partition,
        items,
        scorer,
        on_result=None if on_partition is None else lambda done: on_partition(done, len(items)),
    )
    gather_in(folder)
    measures = {
        target: TargetSums.merge([sums[index] for _, sums in scored]).measure()
        for index, target in enumerate(scorer.options.targets)
    }
    return sum(n_samples for n_samples, _ in scored), measures


def _score_partition(item: tuple[Layer, str], scorer: TableMaker) -> tuple[int, list[TargetSums]]:
    """Score one partition into one Parquet file, block by block; return its number of samples, and sums per target."""
    layer, out = item[0], find_out(item[1])
    if has_arrived(out):
        known = json.loads(pq.read_metadata(out).metadata[ACCOUNT])
        return layer.n_rows, [TargetSums(**each) for each in known["sums"]]
    rows, samples = read_origins(find_local_path(layer.path))
    names = np.array(samples, object)
    schema = scorer.model.schema
    empty = np.empty((0, schema.n_variables), schema.code_dtype)
    columns = scorer.score(empty, list_samples([], rows[:0]))[0].schema
    parts = [[TargetSums()] * len(scorer.options.targets)]
    draft = out.with_name(f".{out.name}.draft")
    with pq.ParquetWriter(draft, columns, **write_options(columns)) as writer:
        for reference, block in zip(layer.blocks, read_blocks(layer.blocks), strict=True):
            codes, here = block.to_codes(schema.offsets), reference.rows
            table, sums = scorer.score(codes, list_samples(names[here].tolist(), rows[here]))
            writer.write_table(table)
            parts.append(sums)
        merged = [TargetSums.merge(each) for each in zip(*parts, strict=True)]
        account = {"rows_in": layer.n_rows, "sums": [asdict(each) for each in merged]}
        writer.add_key_value_metadata({ACCOUNT: json.dumps(account, sort_keys=True)})
    draft.replace(out)
    hand_in(out)
    return layer.n_rows, merged
