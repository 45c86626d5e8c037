"""Stage: pairwise co-occurrence counts of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pmflib.config import PipelineConfig
from pmflib.counting.memory import plan_counting
from pmflib.counting.pair_counts import CountsWriter
from pmflib.counting.stored_pairs import count_stored_pairs
from pmflib.running.clients import count_threads
from pmflib.schema import Schema
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_dataset_blocks
from tasks.stage import build_artefact, load_schema, open_store, open_workers, stage
from tasks.stage_progress import report

VERSION = 2


@stage(name="count")
def count(config: PipelineConfig, dataset: Reference, address: str = "") -> Reference:
    """Count the pairs of levels of all samples, by fold.

    Parameters
    ----------
    config
        The pipeline.
    dataset
        Reference from `ingest`.
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
    n_folds = config.store.folds
    blocks = {fold: list_dataset_blocks(store, dataset, [fold]) for fold in range(n_folds)}
    writer = CountsWriter(folder / "pairs", schema, n_folds)
    with open_workers(config, address) as (client, limit):
        plan_counting(schema.n_levels, count_threads(client)).check(limit)
        report("count", 0, n_folds)
        n_samples = count_stored_pairs(
            client,
            blocks,
            writer,
            work,
            lambda done, n_rows: report("count", done, n_folds, f"{n_rows:,} samples"),
        )
    writer.close()
    return {"samples": n_samples, "levels": schema.n_levels, "variables": schema.n_variables}
