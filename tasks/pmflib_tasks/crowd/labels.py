"""Stage: the true labels of a label log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pmflib.apps.crowd.stored.fitting import write_labels
from pmflib.apps.crowd.stored.log_names import check_label_schema
from pmflib.apps.crowd.stored.stored_labels import StoredLabels
from pmflib.apps.crowd.stored.worker_models import MODEL, WorkerModel
from pmflib.base.display.progress import report_progress
from pmflib.store.artefacts import Reference
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import build_artefact, load_schema, open_store, open_workers, stage

# 15: a file for each fold, by a model of workers that is an artefact of its own
VERSION = 18


@stage(name="labels", makes="labels")
def find_labels(
    config: PipelineConfig,
    dataset: Reference,
    worker_model: Reference,
    address: str = "",
    known: Reference | None = None,
    classifier: Reference | None = None,
) -> Reference:
    """Find the true labels of all tasks, and the skills of the workers.

    Parameters
    ----------
    config
        The pipeline.
    dataset
        Reference from `ingest`.
    worker_model
        The live model, from `pmflib_tasks.crowd.worker_model.worker_model` of this or an earlier run.
    address
        Address of a Dask scheduler; if empty, the run's workers are used, or workers start for this stage.
    known
        Reference from `pmflib_tasks.crowd.known.find_known_labels`, if some labels are known.
    classifier
        Reference from `pmflib_tasks.crowd.known.find_predictions`, if there is a classifier beside the workers.

    Returns
    -------
    Reference to a folder with ``labels``, a Parquet file per fold, and ``workers.parquet``.
    """
    store, schema = open_store(config), check_label_schema(load_schema(config))
    entry = None if known is None else store.find(known.identity)
    n_known = None if entry is None else int(entry.summary["known"])
    made = store.find(worker_model.identity)
    said = {} if made is None else made.options

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        model = WorkerModel.load(store.locate(worker_model) / MODEL).fit_to(schema.names)
        with open_workers(config, address) as (client, memory):
            labels = StoredLabels(
                client, store, dataset, schema, memory=memory, known=known, classifier=classifier
            )
            plan_worker = partial(labels.plan_passes, model.model.annotator_model.n_subclasses)
            labels.memory.check(plan_worker)
            labels.keep_in_memory(plan_worker)
            summary = write_labels(labels, model, folder, partial(report_progress, "labels"))
        return replace(
            summary, method=said.get("method"), em=said.get("em"), known=n_known
        ).to_json()

    beside = {"known": known, "classifier": classifier}
    return build_artefact(
        store,
        "labels",
        inputs={"dataset": dataset, "worker_model": worker_model}
        | {role: each for role, each in beside.items() if each is not None},
        options={"schema": schema.digest},
        version=VERSION,
        write=write,
    ).reference
