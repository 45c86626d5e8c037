"""Stage: the decision which model is live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pmflib.config import PipelineConfig
from pmflib.model.stored_comparison import have_same_parameters
from pmflib.store.artefacts import Reference, Store
from pmflib.store.run_records import Outcome, find_live
from tasks.compare import pass_gate
from tasks.evaluate import evaluate
from tasks.stage import open_store, stage
from tasks.stage_progress import report


@dataclass(frozen=True)
class Decision:
    """Which model is live after a run, and why.

    Parameters
    ----------
    outcome, reason
        As in the record of the run.
    live
        Model that is live.
    before
        Model that was live when this was decided.
    facts
        Plain JSON types: rows, model, scores of the new model and of the one before, what the gate found, warnings.
    """

    outcome: Outcome
    reason: str
    live: Reference
    before: Reference | None
    facts: dict[str, Any]


@stage(name="publish")
def publish(config: PipelineConfig, stages: Mapping[str, Reference], address: str = "") -> Decision:
    """Decide whether the new model is live from now on: only where it passes the gate.

    Parameters
    ----------
    config
        The pipeline.
    stages
        References by stage: dataset, counts, start, model, scores; rank, where it was chosen.
    address
        Dask scheduler of the run, for scoring the live model.

    Returns
    -------
    The decision, which the flow records: against the model that is live now, whichever was when the run began.
    """
    store = open_store(config)
    report("publish", 0, 1)
    new, live = stages["model"], find_live(store, config.name)
    facts: dict[str, Any] = {
        "rows": _summary(store, stages["dataset"]),
        "model": _summary(store, stages["model"]),
        "scores": _summary(store, stages["scores"]),
        "gate": {"new": new.digest, "live": None if live is None else live.digest},
    }
    start = stages.get("start")
    diagnosis = {} if start is None else _summary(store, start).get("diagnosis", {})
    facts["warnings"] = diagnosis.get("warnings", [])
    if "rank" in stages:
        facts["rank"] = _summary(store, stages["rank"])
        # held-out samples have said what pairs can only suspect
        settled = diagnosis.get("rank_warnings", []) if facts["rank"]["judged_by_samples"] else []
        facts["warnings"] = [each for each in facts["warnings"] if each not in settled]
    outcome: Outcome = "promoted"
    chosen, reason = new, "first model of this pipeline"
    if live is not None and have_same_parameters(store, new, live):
        # its reference stays too: other data are no reason to judge the next model by them
        outcome, chosen, reason = "unchanged", live, "the live model, unchanged"
    elif live is not None:
        dataset, counts = stages["dataset"], stages["counts"]
        decision = pass_gate(config, dataset, new, live, address)
        facts["gate"] |= decision.numbers
        if decision.is_comparable:
            # what a target is compared with would be fitted once more, to the same rows
            scores = evaluate.fn(config, dataset, counts, live, address, judge_target=False)
            facts["live_scores"] = _summary(store, scores)
        reason = decision.reason
        if not decision.promoted:
            outcome, chosen = "kept", live
    report("publish", 1, 1, reason)
    return Decision(outcome, reason, chosen, live, facts)


def locate_for_people(store: Store, live: Reference) -> dict[str, str]:
    """Live model and its path; no record holds paths, for a store may be moved."""
    return {"live_model": live.digest, "live": store.name_artefact(live, "model")}


def _summary(store: Store, reference: Reference) -> dict[str, Any]:
    entry = store.find(reference.identity)
    return {} if entry is None else entry.summary
