"""Stage: the decision by which model of the workers tasks are labelled, and what was found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pmflib.config import PipelineConfig
from pmflib.core.errors import StoreError
from pmflib.crowd.pipeline.stored_labels import StoredLabels
from pmflib.crowd.pipeline.worker_models import MODEL, WorkerModel
from pmflib.ingest.dataset.log_names import check_label_schema
from pmflib.scoring.comparison import PairedGain
from pmflib.store.artefacts import Reference, Store
from pmflib.store.erasures import list_erased
from pmflib.store.run_records import Outcome, find_live, name_labelling
from pmflib_tasks.compare import settle_gate
from pmflib_tasks.publish import Decision
from pmflib_tasks.stage import build_artefact, load_schema, open_store, open_workers, stage

VERSION = 1
COMPARABLE = ("method", "em", "annotator_model", "limits", "held_out")
"""Options of a model of workers that a person chooses: one that was made with others is compared with nothing."""
IDENTIFYING = ("ask_again", "suspicious_workers")
"""What names tasks and workers: it is said of the labels, and in no record, for records are never changed."""


@stage(name="compare")
def compare_worker_models(
    config: PipelineConfig, dataset: Reference, new: Reference, live: Reference, address: str = ""
) -> Reference:
    """Predict held-out labels of a dataset by two models of its workers, and estimate the gain of the new one."""
    store, schema = open_store(config), check_label_schema(load_schema(config))

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        both = [WorkerModel.load(store.locate(each) / MODEL) for each in (new, live)]
        with open_workers(config, address) as (client, memory):
            labels = StoredLabels(client, store, dataset, schema, memory=memory)
            found = labels.compare(*both).to_json()
        (folder / "gain.json").write_text(json.dumps(found, indent=1), "utf-8")
        return found

    return build_artefact(
        store,
        "comparison",
        inputs={"dataset": dataset, "worker_model": new, "live": live},
        options={"schema": schema.digest},
        version=VERSION,
        write=write,
    ).reference


@stage(name="publish")
def choose_worker_model(
    config: PipelineConfig, dataset: Reference, new: Reference, address: str = ""
) -> Decision:
    """Decide whether the new model of the workers is live from now on: only where it passes the gate.

    Parameters
    ----------
    config
        The pipeline.
    dataset, new
        What `ingest` and `pmflib_tasks.worker_model.worker_model` returned.
    address
        Dask scheduler of the run.

    Returns
    -------
    The decision. A model of other options or classes than the live one's goes live: a person wanted it so, or tasks
    have labels that the live model cannot give.
    """
    store, name = open_store(config), name_labelling(config.name)
    live = find_live(store, name)
    facts: dict[str, Any] = {"new": new.digest, "live": None if live is None else live.digest}
    outcome: Outcome = "promoted"
    chosen, reason = new, "first model of these workers"
    if live is not None and new.digest == live.digest:
        outcome, chosen, reason = "unchanged", live, "the live model, unchanged"
    elif live is not None:
        changed = _find_changes(store, new, live)
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

            decision = settle_gate(config, name, dataset, new, live, weigh)
            facts |= decision.numbers.to_json()
            reason = decision.reason
            if not decision.promoted:
                outcome, chosen = "kept", live
    return Decision(outcome, reason, chosen, live, {"gate": facts})


def find_warm_start(config: PipelineConfig) -> Reference | None:
    """Live model that passes may go on from: where that is wanted, and its classes are today's; else None."""
    store = open_store(config)
    live = find_live(store, name_labelling(config.name)) if config.crowd.warm else None
    entry = None if live is None else store.find(live.identity)
    if entry is None or entry.inputs["dataset"].identity in list_erased(store):
        return None
    same = tuple(entry.summary["classes"]) == load_schema(config)[0].levels
    return live if same and entry.options.get("method") == config.crowd.method else None


def _find_changes(store: Store, new: Reference, live: Reference) -> str:
    """What a person, or a new label, has changed since the live model was made, as a clause; "" for nothing."""
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
    """Option as text: tuples become lists in a manifest."""
    return json.dumps(options.get(key))


@stage(name="publish labels")
def publish_labels(config: PipelineConfig, stages: Mapping[str, Reference]) -> dict[str, object]:
    """Sum up what was found, for the record of the run.

    Parameters
    ----------
    config
        The pipeline.
    stages
        Artefact of each stage: "dataset", "labels", "worker_model", "pairs" and "crowd_model" where the method begins
        with them, and "known" where the labels of some tasks are known.

    Returns
    -------
    Facts: what was found, rows read and set aside. They name no task and no worker: see `name_for_people`.
    """
    store, dataset, labels = open_store(config), stages["dataset"], stages["labels"]
    entry, rows = store.find(labels.identity), store.find(dataset.identity)
    facts: dict[str, object] = {"digest": labels.digest}
    if entry is not None:
        facts |= {key: each for key, each in entry.summary.items() if key not in IDENTIFYING}
    facts["rows"] = {} if rows is None else rows.summary
    known = store.find(stages["known"].identity) if "known" in stages else None
    if known is not None:
        facts["known_labels"] = known.summary
    return facts


def name_for_people(store: Store, stages: Mapping[str, Reference]) -> dict[str, object]:
    """Path of the labels, tasks to ask again and workers to look at: what no record holds.

    A store may be moved, and whoever is named may want to be forgotten.
    """
    labels = stages["labels"]
    entry = store.find(labels.identity)
    summary = {} if entry is None else entry.summary
    named = {key: summary[key] for key in IDENTIFYING if key in summary}
    return {"path": store.name_artefact(labels), **named}
