"""The flow that a schedule runs, and its first parts: each flow runs the stages up to its own.

A stage whose result is in the manifest returns at once, so a flow continues where an earlier one stopped.
"""

from __future__ import annotations

from typing import Any

from flows.pipeline_flow import pipeline_flow
from flows.recording import record_run
from flows.run_lineage import follow_run
from pmflib.config import PipelineConfig, load_config
from pmflib.running.clients import share_workers
from pmflib.store.artefacts import Reference
from tasks.count import count
from tasks.evaluate import evaluate
from tasks.fit import fit
from tasks.ingest import ingest
from tasks.publish import locate_for_people, publish
from tasks.refine import refine
from tasks.select import select, settle
from tasks.stage import open_store


@pipeline_flow(name="ingest")
def ingest_flow(config: str) -> Reference:
    """Encode the sources of a pipeline configuration file into partitions."""
    checked = load_config(config)
    with follow_run(checked), share_workers(checked.cluster) as address:
        return ingest(checked, address)


@pipeline_flow(name="marginals")
def marginals_flow(config: str) -> Reference:
    """Count the co-occurrences of all pairs."""
    checked = load_config(config)
    with follow_run(checked), share_workers(checked.cluster) as address:
        return count(checked, ingest(checked, address), address)


@pipeline_flow(name="fit")
def fit_flow(config: str) -> Reference:
    """Fit a model to the marginals, and refine it by EM."""
    checked = load_config(config)
    with follow_run(checked), share_workers(checked.cluster) as address:
        stages: dict[str, Reference] = {}
        run_to_model(checked, address, stages)
        return stages["model"]


@pipeline_flow(name="etl")
def etl(config: str) -> dict[str, Any]:
    """Ingest, count, fit, refine, evaluate, publish.

    Parameters
    ----------
    config
        Path of a pipeline configuration file.

    Returns
    -------
    Facts of the run for people: those of its record, its outcome and reason, and where the live model is.
    """
    checked = load_config(config)
    with record_run(checked) as run, share_workers(checked.cluster) as address:
        stages = run.stages
        run_to_model(checked, address, stages)
        stages["scores"] = evaluate(
            checked, stages["dataset"], stages["counts"], stages["model"], address
        )
        decision = publish(checked, stages, run.live, address)
        run.outcome, run.reason, run.live = decision.outcome, decision.reason, decision.live
        run.facts |= decision.facts
    paths = locate_for_people(open_store(checked), decision, run.stages["dataset"])
    return {"outcome": run.outcome, "reason": run.reason, **run.facts, **paths}


def run_to_model(config: PipelineConfig, address: str, stages: dict[str, Reference]) -> None:
    """Run the stages up to the refined model; each reference is added as its stage is reached."""
    dataset = stages["dataset"] = ingest(config, address)
    counts = stages["counts"] = count(config, dataset, address)
    if config.model.rank == "auto":
        stages["rank"] = select(config, dataset, counts, address)
        config = settle(config, stages["rank"])
    start = stages["start"] = fit(config, counts, stages.get("rank"))
    stages["model"] = refine(config, dataset, counts, start, address)
