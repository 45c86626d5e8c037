"""Stage: pairwise co-occurrence counts of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.arrays import IntArray
from pmflib.config import PipelineConfig
from pmflib.counting.fold_checkpoint import load_table, save_table
from pmflib.counting.pair_counts import CountsWriter
from pmflib.em.block_groups import count_group, merge_tables
from pmflib.running.memory_plan import COUNTING, group_blocks, plan_counting
from pmflib.running.parallel import PendingResult, count_threads, start_blocks
from pmflib.schema import Schema
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_dataset_blocks
from tasks.stage import build_artefact, load_schema, open_store, open_workers, report, stage

VERSION = 2

FOLDS_AHEAD = 4
"""Folds counted while one is waited for."""


@stage(name="count")
def count(config: PipelineConfig, dataset: Reference, address: str = "") -> Reference:
    """Count the pairs of levels of all samples, by fold.

    Parameters
    ----------
    config
        The pipeline.
    dataset
        What `ingest` returned.
    address
        Dask scheduler of the run; empty starts workers for this stage.

    Returns
    -------
    Reference to the counts.

    Raises
    ------
    MemoryPlanError
        If the count tables would not fit.
    """
    store, schema = open_store(config), load_schema(config)
    entry = build_artefact(
        store,
        "counts",
        inputs={"dataset": dataset},
        options={"schema": schema.digest, "folds": config.store.folds},
        version=VERSION,
        write=lambda folder, work: _write(config, store, schema, dataset, address, folder, work),
    )
    return entry.reference


def _write(
    config: PipelineConfig,
    store: Store,
    schema: Schema,
    dataset: Reference,
    address: str,
    folder: Path,
    work: Path,
) -> Mapping[str, Any]:
    """Count every fold that no killed run has counted already, and write them in order."""
    n_folds = config.store.folds
    blocks = {fold: list_dataset_blocks(store, dataset, [fold]) for fold in range(n_folds)}
    writer = CountsWriter(folder / "pairs", schema, n_folds)
    with open_workers(config, address) as (client, limit):
        plan_counting(schema.n_levels, count_threads(client)).check(limit)

        def start(fold: int) -> PendingResult[IntArray]:
            groups = group_blocks(blocks[fold], COUNTING)
            # tables may be large: a worker holds one at a time
            return start_blocks(
                client, count_group, groups, merge_tables, schema.offsets, bundle=False
            )

        pending: dict[int, PendingResult[IntArray]] = {}
        n_rows = 0
        report("count", 0, n_folds)
        for fold, mine in blocks.items():
            # few folds at a time: a table that waits to be written takes as much memory as one being counted
            for ahead in range(fold, min(fold + FOLDS_AHEAD, n_folds)):
                if blocks[ahead] and ahead not in pending and not _checkpoint(work, ahead).exists():
                    pending[ahead] = start(ahead)
            table = np.zeros((schema.n_levels,) * 2, np.int64)
            n_mine = sum(block.n_rows for block in mine)
            if mine:
                begun = pending.pop(fold, None)
                table = _finish_fold(_checkpoint(work, fold), n_mine, begun, partial(start, fold))
            writer.write(fold, table, n_mine)
            n_rows += n_mine
            report("count", fold + 1, n_folds, f"{n_rows:,} samples")
    writer.close()
    return {"samples": n_rows, "levels": schema.n_levels, "variables": schema.n_variables}


def _checkpoint(work: Path, fold: int) -> Path:
    return work / f"fold-{fold}.npz"


def _finish_fold(
    checkpoint: Path,
    n_rows: int,
    pending: PendingResult[IntArray] | None,
    start: Callable[[], PendingResult[IntArray]],
) -> IntArray:
    """Wait for the counts of a fold, and save them; or take them from the checkpoint of a killed run."""
    if pending is None:
        if (counted := load_table(checkpoint)) is not None:
            return counted[0]
        # another run of the same work was done first, and took its checkpoints away
        pending = start()
    table = pending.wait()
    save_table(checkpoint, table, n_rows)
    return table
