"""Stage: pairwise co-occurrence counts of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pmflib.checkpoint import load_table, save_table
from pmflib.config import PipelineConfig
from pmflib.counts import CountsWriter
from pmflib.parallel import PendingResult, count_threads, start_blocks
from pmflib.passes import count_group, merge_tables
from pmflib.plan import group_blocks, plan_counting
from pmflib.schema import Schema
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_dataset_blocks
from tasks.stage import load_schema, open_store, open_workers, publish_facts, report, stage, timed

VERSION = 1

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
    with timed() as seconds:
        entry = store.build(
            "counts",
            inputs={"dataset": dataset},
            options={"schema": schema.digest, "folds": config.store.folds},
            version=VERSION,
            write=lambda folder, work: _write(
                config, store, schema, dataset, address, folder, work
            ),
        )
        publish_facts(entry, seconds())
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
        waiting = [
            fold
            for fold, mine in blocks.items()
            if mine and not (work / f"fold-{fold}.npz").exists()
        ]
        pending: dict[int, PendingResult[Any]] = {}
        n_rows = 0
        report("count", 0, n_folds)
        for fold in range(n_folds):
            # few folds at a time: a table that waits to be written takes as much memory as one being counted
            while waiting and len(pending) < FOLDS_AHEAD:
                ahead = waiting.pop(0)
                groups = group_blocks(blocks[ahead])
                pending[ahead] = start_blocks(
                    client, count_group, groups, merge_tables, schema.offsets
                )
            n_rows += _finish_fold(writer, fold, pending.pop(fold, None), blocks[fold], work)
            report("count", fold + 1, n_folds, f"{n_rows:,} samples")
    writer.close()
    return {"samples": n_rows, "levels": schema.n_levels, "variables": schema.n_variables}


def _finish_fold(
    writer: CountsWriter,
    fold: int,
    pending: PendingResult[Any] | None,
    blocks: list[Any],
    work: Path,
) -> int:
    """Wait for the counts of a fold, or take them from its checkpoint; write them; return its samples."""
    checkpoint = work / f"fold-{fold}.npz"
    n_rows = sum(block.n_rows for block in blocks)
    if pending is not None:
        table = pending.wait()
        save_table(checkpoint, table, n_rows)
        writer.write(fold, table, n_rows)
    elif (counted := load_table(checkpoint)) is not None:
        writer.write(fold, *counted)
    return int(n_rows)
