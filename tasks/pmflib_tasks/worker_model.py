"""Stage: a model of the workers of a label log, by passes over its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pmflib.crowd.dawid_skene import CrowdState, plan_passes
from pmflib.crowd.label_log import check_class_order
from pmflib.crowd.pipeline.fitting import fit_stored_labels, write_worker_model
from pmflib.crowd.pipeline.stored_labels import StoredLabels
from pmflib.crowd.pipeline.worker_models import MODEL, WorkerModel
from pmflib.display.progress import report_progress
from pmflib.ingest.dataset.log_names import check_label_schema
from pmflib.store.artefacts import Reference
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import build_artefact, load_schema, open_store, open_workers, stage

VERSION = 2


@stage(name="worker model")
def worker_model(
    config: PipelineConfig,
    dataset: Reference,
    crowd_model: Reference | None = None,
    address: str = "",
    known: Reference | None = None,
    warm: Reference | None = None,
) -> Reference:
    """Find how good the workers are; whether that is what tasks are labelled by is for the gate to say.

    Parameters
    ----------
    config
        The pipeline; its method and tolerance count, and its EM section limits the number of passes.
    dataset
        What `ingest` returned.
    crowd_model
        What `pmflib_tasks.crowd_model.crowd_model` returned, where the method begins with pairs of workers.
    address
        Dask scheduler of the run; empty uses those of the run, or starts some for this stage.
    known
        What `pmflib_tasks.known.find_known_labels` returned, where the labels of some tasks are known.
    warm
        Live model that passes go on from; None for a full run.

    Returns
    -------
    Reference to the model.

    Raises
    ------
    MemoryPlanError
        If the parameters and statistics would not fit.
    """
    store, schema = open_store(config), check_label_schema(load_schema(config))
    crowd, least_folds = config.crowd, len(config.fold_split.test)
    plan = plan_passes(crowd.method, config.em.max_passes, crowd.tol, ordinal=crowd.ordinal)
    if crowd.ordinal:
        check_class_order(schema[0].levels, given=crowd.classes is not None)
    method: dict[str, object] = {"method": crowd.method}
    most_passes = plan.count_most(with_known=known is not None)
    inputs, limits = {"dataset": dataset}, {"limits": (plan.max_passes, plan.tol)}
    if known is not None:
        inputs["known"] = known
    if crowd_model is None:
        options = method | limits | {"annotator_model": asdict(plan.annotator_model)}
    else:
        inputs["crowd_model"] = crowd_model
        method["em"] = crowd.em
        options = method | (limits if crowd.em else {})

    if warm is not None:
        inputs["warm"] = warm

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        with open_workers(config, address) as (client, memory):
            labels = StoredLabels(client, store, dataset, schema, memory=memory, known=known)
            fit = fit_stored_labels(
                labels,
                plan,
                start=None if crowd_model is None else store.locate(crowd_model),
                warm=None
                if warm is None
                else WorkerModel.load(store.locate(warm) / MODEL).fit_to(labels.workers).model,
                em=crowd.em,
                work=work,
                on_pass=lambda fit: report_progress(
                    "passes", fit.n_passes, most_passes, _show(fit)
                ),
                on_first_pass=lambda fit: report_progress("passes", 0, 1, _show(fit)),
            )
            report_progress("passes", fit.n_passes, fit.n_passes)
            return write_worker_model(
                labels, fit, folder, least_folds=least_folds, n_folds=config.store.folds
            )

    return build_artefact(
        store,
        "worker-model",
        inputs=inputs,
        options={"schema": schema.digest, "held_out": least_folds, **options},
        version=VERSION,
        write=write,
    ).reference


def _show(fit: CrowdState) -> str:
    return f"{fit.numbers['moved']:.2g} of the labels moved"
