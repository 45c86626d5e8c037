"""Stage: the decision which model is live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pmflib.config import PipelineConfig
from pmflib.model import JointPMF
from pmflib.store.artefacts import Reference, Store
from pmflib.store.run_records import Outcome
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
    facts
        Plain JSON types: rows, scores, warnings.
    """

    outcome: Outcome
    reason: str
    live: Reference
    facts: dict[str, Any]


@stage(name="publish")
def publish(
    config: PipelineConfig,
    stages: Mapping[str, Reference],
    live: Reference | None,
    address: str = "",
) -> Decision:
    """Decide whether the new model is live from now on: unless the live one is better on the same hidden answers.

    Parameters
    ----------
    config
        The pipeline.
    stages
        References by stage: dataset, counts, start, model, scores; rank, where it was chosen.
    live
        Model that is live; None if there is none yet.
    address
        Dask scheduler of the run, for scoring the live model.

    Returns
    -------
    The decision, which the flow records.
    """
    store = open_store(config)
    report("publish", 0, 1)
    scores = _summary(store, stages["scores"])
    outcome, chosen, reason = _choose(config, store, stages, live, scores, address)
    facts: dict[str, Any] = {
        "rows": _summary(store, stages["dataset"]),
        "model": _summary(store, stages["model"]),
        "scores": scores,
        "warnings": _summary(store, stages["start"]).get("diagnosis", {}).get("warnings", []),
    }
    if "rank" in stages:
        facts["rank"] = _summary(store, stages["rank"])
    report("publish", 1, 1, reason)
    return Decision(outcome, reason, chosen, facts)


def _choose(
    config: PipelineConfig,
    store: Store,
    stages: Mapping[str, Reference],
    live: Reference | None,
    scores: Mapping[str, Any],
    address: str,
) -> tuple[Outcome, Reference, str]:
    """Compare the new model with the live one on the new test folds."""
    new = stages["model"]
    if live is None:
        return "promoted", new, "first model of this pipeline"
    if live.digest == new.digest:
        return "unchanged", new, "the live model, unchanged"
    entry = store.find(live.identity)
    if entry is None or not scores["hidden_cells"]:
        return "promoted", new, "promoted: nothing to compare with"
    if _schema_of(store, live) != _schema_of(store, new):
        return "promoted", new, "promoted: the schema has changed"
    old = _summary(store, evaluate.fn(config, stages["dataset"], stages["counts"], live, address))
    gain = scores["log_prob_per_cell"] - old["log_prob_per_cell"]
    if gain >= 0:
        return "promoted", new, f"promoted: {gain:+.5f} nats per hidden cell against the live model"
    return "kept", live, f"kept the live model: the new one has {gain:+.5f} nats per hidden cell"


def locate_for_people(store: Store, decision: Decision) -> dict[str, str]:
    """Path of the live model; no record holds it, for a store may be moved."""
    return {"live": str(store.locate(decision.live) / "model")}


def _summary(store: Store, reference: Reference) -> dict[str, Any]:
    entry = store.find(reference.identity)
    return {} if entry is None else entry.summary


def _schema_of(store: Store, model: Reference) -> str:
    return JointPMF.load(store.locate(model) / "model").schema.digest
