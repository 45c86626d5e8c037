"""Stages: the model of the workers, its comparison with the live model, and the choice between them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pmflib.apps.crowd.dawid_skene import CrowdState, plan_passes
from pmflib.apps.crowd.label_log import check_class_order
from pmflib.apps.crowd.stored.fitting import fit_stored_labels, write_worker_model
from pmflib.apps.crowd.stored.log_names import check_label_schema
from pmflib.apps.crowd.stored.stored_labels import StoredLabels
from pmflib.apps.crowd.stored.worker_models import MODEL, WorkerModel
from pmflib.base.comparison import PairedGain
from pmflib.base.display.progress import report_progress
from pmflib.base.errors import StoreError
from pmflib.store.artefacts import Reference, Store
from pmflib.store.erasures import list_erased
from pmflib.store.run_records import Outcome, find_live, name_labelling
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.crowd.section import CrowdConfig
from pmflib_tasks.facts import RunFacts
from pmflib_tasks.gate.gate import decide_gate
from pmflib_tasks.gate.publish import Decision
from pmflib_tasks.stage import build_artefact, load_schema, open_store, open_workers, stage

VERSION = 5


@stage(name="worker model", makes="worker-model")
def worker_model(
    config: PipelineConfig,
    dataset: Reference,
    crowd_model: Reference | None = None,
    address: str = "",
    known: Reference | None = None,
    warm: Reference | None = None,
) -> Reference:
    """Fit a model of the workers; the gate decides whether it labels the tasks.

    Parameters
    ----------
    config
        The pipeline; its method and tolerance are used, and its EM section limits the number of passes.
    dataset
        Reference from `ingest`.
    crowd_model
        Reference from `pmflib_tasks.crowd.crowd_model.crowd_model`, if the method starts from pairs of workers.
    address
        Address of a Dask scheduler; if empty, the run's workers are used, or workers start for this stage.
    known
        Reference from `pmflib_tasks.crowd.known.find_known_labels`, if some labels are known.
    warm
        Live model that passes start from; None for a full fit.

    Returns
    -------
    Reference to the model.

    Raises
    ------
    MemoryPlanError
        If the parameters and statistics do not fit in memory.
    """
    store, schema = open_store(config), check_label_schema(load_schema(config))
    crowd, least_folds = config.section(CrowdConfig), len(config.fold_split.test)
    plan = plan_passes(crowd.method, config.em.max_passes, crowd.tol, ordinal=crowd.ordinal)
    if crowd.ordinal:
        check_class_order(schema[0].levels, given=crowd.classes is not None)
    method: dict[str, object] = {"method": crowd.choice}
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


COMPARABLE = ("method", "em", "annotator_model", "limits", "held_out")
"""Options chosen by a person; models of workers with different options are not compared."""


def find_warm_start(config: PipelineConfig) -> Reference | None:
    """Find the live model as a warm start: if asked for and of the current classes; else None."""
    store = open_store(config)
    live = (
        find_live(store, name_labelling(config.name)) if config.section(CrowdConfig).warm else None
    )
    entry = None if live is None else store.find(live.identity)
    if entry is None or entry.inputs["dataset"].identity in list_erased(store):
        return None
    same = tuple(entry.summary["classes"]) == load_schema(config)[0].levels
    return (
        live if same and entry.options.get("method") == config.section(CrowdConfig).method else None
    )


def find_changes(store: Store, new: Reference, live: Reference) -> str:
    """Describe in a clause why a new and the live model are not comparable; empty if they are."""
    made, before = store.find(new.identity), store.find(live.identity)
    if made is None or before is None:
        return "that one is not in the store any more"
    if before.inputs["dataset"].identity in list_erased(store):
        return "an erasure has taken out of the store what that one was made from"
    try:
        WorkerModel.load(store.locate(live) / MODEL)
    except StoreError as error:
        return f"that one cannot be read ({error})"
    if made.summary["classes"] != before.summary["classes"]:
        return "the classes are others"
    other = [key for key in COMPARABLE if _read(made.options, key) != _read(before.options, key)]
    if other or ("known" in made.inputs) != ("known" in before.inputs):
        return "[crowd] or [em] has been changed"
    return ""


def _read(options: Mapping[str, Any], key: str) -> str:
    """Encode an option as text, because tuples become lists in a manifest."""
    return json.dumps(options.get(key))


COMPARISON_VERSION = 1


@stage(name="compare", makes="comparison")
def compare_worker_models(
    config: PipelineConfig, dataset: Reference, new: Reference, live: Reference, address: str = ""
) -> Reference:
    """Predict held-out labels of a dataset with two models of its workers, and estimate the gain of the new one."""
    store, schema = open_store(config), check_label_schema(load_schema(config))

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        both = [WorkerModel.load(store.locate(each) / MODEL) for each in (new, live)]
        with open_workers(config, address) as (client, memory):
            labels = StoredLabels(client, store, dataset, schema, memory=memory)
            found = labels.compare_models(*both).to_json()
        (folder / "gain.json").write_text(json.dumps(found, indent=1), "utf-8")
        return found

    return build_artefact(
        store,
        "comparison",
        inputs={"dataset": dataset, "worker_model": new, "live": live},
        options={"schema": schema.digest},
        version=COMPARISON_VERSION,
        write=write,
    ).reference


@stage(name="publish")
def choose_worker_model(
    config: PipelineConfig, dataset: Reference, new: Reference, address: str = ""
) -> Decision:
    """Decide whether the new model of the workers goes live, which takes a pass of the gate.

    Parameters
    ----------
    config
        The pipeline.
    dataset, new
        References from `ingest` and `worker_model`.
    address
        Dask scheduler of the run.

    Returns
    -------
    The decision. A model whose options or classes differ from those of the live model goes live: a person changed them,
    or tasks have labels that the live model lacks.
    """
    store, name = open_store(config), name_labelling(config.name)
    live = find_live(store, name)
    gate: dict[str, Any] = {"new": new.digest, "live": None if live is None else live.digest}
    outcome: Outcome = "promoted"
    chosen, reason = new, "first model of these workers"
    if live is not None and new.digest == live.digest:
        outcome, chosen, reason = "unchanged", live, "the live model, unchanged"
    elif live is not None:
        changed = find_changes(store, new, live)
        if changed:
            reason = f"promoted over the live model: {changed}"
        else:
            before = live

            def weigh(dataset_of: Reference) -> PairedGain | str:
                made = compare_worker_models.fn(config, dataset_of, new, before, address)
                entry = store.find(made.identity)
                assert entry is not None
                found = PairedGain.from_json(entry.summary)
                return found if found.cells else "no held-out task has two labels"

            decision = decide_gate(config, name, dataset, new, live, weigh)
            gate |= decision.numbers.to_json()
            reason = decision.reason
            if not decision.promoted:
                outcome, chosen = "kept", live
    return Decision(outcome, reason, chosen, live, RunFacts({"gate": gate}))
