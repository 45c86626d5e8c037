"""Stages: counts of pairs of workers who label the same tasks, and the crowd model fitted to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pmflib.apps.crowd.stored.block_groups import check_method
from pmflib.apps.crowd.stored.fitting import write_crowd_model, write_pairs
from pmflib.apps.crowd.stored.log_names import check_label_schema
from pmflib.apps.crowd.stored.stored_labels import StoredLabels
from pmflib.base.display.progress import report_progress
from pmflib.store.artefacts import Reference
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.crowd.section import CrowdConfig
from pmflib_tasks.stage import build_artefact, load_schema, open_store, open_workers, stage

PAIRS_VERSION = 2


@stage(name="pairs", makes="worker-pairs")
def worker_pairs(config: PipelineConfig, dataset: Reference, address: str = "") -> Reference:
    """Count the pairs of labels that workers gave to the same tasks.

    Parameters
    ----------
    config
        The pipeline, with the method that uses the counts.
    dataset
        Reference from `ingest`.
    address
        Address of a Dask scheduler; if empty, the run's workers are used, or workers start for this stage.

    Returns
    -------
    Reference to the counts, which all methods of co-occurrences share.

    Raises
    ------
    MemoryPlanError
        If the counts do not fit in memory, or the method cannot handle so many workers.
    """
    store, schema = open_store(config), check_label_schema(load_schema(config))
    check_method(config.section(CrowdConfig).method, schema.n_variables, schema[0].cardinality)

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
        version=PAIRS_VERSION,
        write=write,
    )
    return entry.reference


VERSION = 6


@stage(name="crowd model", makes="crowd-model")
def crowd_model(
    config: PipelineConfig,
    dataset: Reference,
    pairs: Reference,
    address: str = "",
    known: Reference | None = None,
) -> Reference:
    """Fit confusion matrices and the class prior to the pairs of workers, on one machine.

    Parameters
    ----------
    config
        The pipeline; its method and its seed are used.
    dataset, pairs
        References from `ingest` and `worker_pairs`. Passes over the tasks resolve what pairs cannot identify.
    address
        Address of a Dask scheduler; if empty, the run's workers are used, or workers start for this stage.
    known
        Reference from `pmflib_tasks.crowd.known.find_known_labels`, if some labels are known; they help to identify
        classes.

    Returns
    -------
    Reference to the crowd model.

    Raises
    ------
    MemoryPlanError
        If the data structures of the method do not fit in memory.
    """
    store, schema = open_store(config), check_label_schema(load_schema(config))
    method = config.section(CrowdConfig).choice

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        with open_workers(config, address) as (client, memory):
            labels = StoredLabels(
                client,
                store,
                dataset,
                schema,
                memory=memory,
                known=known,
            )
            return write_crowd_model(
                labels,
                store.locate(pairs),
                method,
                seed=config.seed,
                folder=folder,
                work=work,
                on_scored=lambda n: report_progress("crowd model", 0, 1, f"{n} judged"),
            )

    report_progress("crowd model", 0, 1)
    entry = build_artefact(
        store,
        "crowd-model",
        inputs={"dataset": dataset, "pairs": pairs} | ({} if known is None else {"known": known}),
        options={"schema": schema.digest, "method": method, "seed": config.seed},
        version=VERSION,
        write=write,
    )
    report_progress("crowd model", 1, 1, config.section(CrowdConfig).method)
    return entry.reference
