"""Stage: the decision by which model of the workers tasks are labelled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pmflib.core.comparison import PairedGain
from pmflib.crowd.pipeline.stored_labels import StoredLabels
from pmflib.crowd.pipeline.worker_models import MODEL, WorkerModel
from pmflib.ingest.dataset.log_names import check_label_schema
from pmflib.store.artefacts import Reference
from pmflib.store.run_records import Outcome, find_live, name_labelling
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.gate import settle_gate
from pmflib_tasks.live_workers import find_changes
from pmflib_tasks.publish import Decision
from pmflib_tasks.stage import build_artefact, load_schema, open_store, open_workers, stage

VERSION = 1


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
            found = labels.compare_models(*both).to_json()
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

            decision = settle_gate(config, name, dataset, new, live, weigh)
            facts |= decision.numbers.to_json()
            reason = decision.reason
            if not decision.promoted:
                outcome, chosen = "kept", live
    return Decision(outcome, reason, chosen, live, {"gate": facts})
