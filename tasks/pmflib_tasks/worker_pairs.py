"""Stage: counts of the pairs of workers who label the same tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pmflib.crowd.pipeline.block_groups import check_method
from pmflib.crowd.pipeline.fitting import write_pairs
from pmflib.crowd.pipeline.stored_labels import StoredLabels
from pmflib.display.progress import report_progress
from pmflib.ingest.dataset.log_names import check_label_schema
from pmflib.store.artefacts import Reference
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import build_artefact, load_schema, open_store, open_workers, stage

VERSION = 2


@stage(name="pairs")
def worker_pairs(config: PipelineConfig, dataset: Reference, address: str = "") -> Reference:
    """Count the pairs of labels that workers gave to the same tasks.

    Parameters
    ----------
    config
        The pipeline; its method says what the counts are for.
    dataset
        What `ingest` returned.
    address
        Dask scheduler of the run; empty uses those of the run, or starts some for this stage.

    Returns
    -------
    Reference to the counts: every method of co-occurrences begins with the same.

    Raises
    ------
    MemoryPlanError
        If the counts would not fit, or the method cannot take so many workers.
    """
    store, schema = open_store(config), check_label_schema(load_schema(config))
    check_method(config.crowd.method, schema.n_variables, schema[0].cardinality)

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        with open_workers(config, address) as (client, memory):
            labels = StoredLabels(client, store, dataset, schema, memory=memory)
            total = labels.n_tasks
            summary = write_pairs(
                labels, folder, lambda done: report_progress("pairs", done, total)
            )
        text = f"{summary.pairs:,} pairs of {summary.workers:,} workers"
        report_progress("pairs", total, total, text)
        return asdict(summary)

    entry = build_artefact(
        store,
        "worker-pairs",
        inputs={"dataset": dataset},
        options={"schema": schema.digest},
        version=VERSION,
        write=write,
    )
    return entry.reference
