"""Stage: record the run, and decide which model is live."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pmflib.config import PipelineConfig
from pmflib.model import JointPMF
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import QUARANTINE
from pmflib.store.run_records import read_run, write_run
from tasks.evaluate import evaluate
from tasks.stage import open_store, stage
from tasks.stage_progress import report


@stage(name="publish")
def publish(
    config: PipelineConfig, stages: Mapping[str, Reference], address: str = ""
) -> dict[str, Any]:
    """Record the run; make its model live unless the live one is better on the same hidden answers.

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
    Facts for users: the live model, its path and why it is live, rows, scores, and the path of the quarantine, if any.
    """
    store = open_store(config)
    report("publish", 0, 1)
    scores = _summary(store, stages["scores"])
    live, verdict = stages["model"], "first model of this pipeline"
    if (last := read_run(store, config.name)) is not None:
        live, verdict = _choose(config, store, stages, last[0]["live"], scores, address)
    facts: dict[str, Any] = {
        "config": config.digest,
        "verdict": verdict,
        "rows": _summary(store, stages["dataset"]),
        "model": _summary(store, stages["model"]),
        "scores": scores,
        "warnings": _summary(store, stages["start"]).get("diagnosis", {}).get("warnings", []),
    }
    if "rank" in stages:
        facts["rank"] = _summary(store, stages["rank"])
    if facts["rows"].get("rows_quarantined"):
        facts["quarantine"] = str(store.locate(stages["dataset"]) / QUARANTINE)
    write_run(store, config.name, {**stages, "live": live}, facts)
    report("publish", 1, 1, verdict)
    # not recorded: a store may be moved
    return facts | {"live": str(store.locate(live) / "model")}


def _choose(
    config: PipelineConfig,
    store: Store,
    stages: Mapping[str, Reference],
    live: Reference,
    scores: Mapping[str, Any],
    address: str,
) -> tuple[Reference, str]:
    """Compare the new model with the live one on the new test folds."""
    new = stages["model"]
    if live.digest == new.digest:
        return new, "the live model, unchanged"
    entry = store.find(live.identity)
    if entry is None or not scores["hidden_cells"]:
        return new, "promoted: nothing to compare with"
    if _schema_of(store, live) != _schema_of(store, new):
        return new, "promoted: the schema has changed"
    old = _summary(store, evaluate.fn(config, stages["dataset"], stages["counts"], live, address))
    gain = scores["log_prob_per_cell"] - old["log_prob_per_cell"]
    if gain >= 0:
        return new, f"promoted: {gain:+.5f} nats per hidden cell against the live model"
    return live, f"kept the live model: the new one has {gain:+.5f} nats per hidden cell"


def _summary(store: Store, reference: Reference) -> dict[str, Any]:
    entry = store.find(reference.identity)
    return {} if entry is None else entry.summary


def _schema_of(store: Store, model: Reference) -> str:
    return JointPMF.load(store.locate(model) / "model").schema.digest
