"""The flow that a schedule runs, and its first parts: each flow runs the stages up to its own.

A stage whose result is in the manifest returns at once, so a flow continues where an earlier one stopped.
"""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from flows.recording import record_run
from pmflib.config import PipelineConfig, load_config
from pmflib.running.clients import start_workers
from pmflib.store.artefacts import Reference
from pmflib.store.run_records import find_last_run
from tasks.count import count
from tasks.evaluate import evaluate
from tasks.fit import fit
from tasks.ingest import ingest
from tasks.publish import locate_for_people, publish
from tasks.refine import refine
from tasks.select import select, settle
from tasks.stage import open_store


def name_run() -> str:
    """Name a flow run after its pipeline and the digest of its configuration."""
    config = load_config(flow_run.parameters["config"])
    return f"{config.name}-{config.digest[:8]}"


@flow(name="ingest", flow_run_name=name_run)
def ingest_flow(config: str) -> Reference:
    """Encode the sources of a pipeline configuration file into partitions."""
    checked = load_config(config)
    with start_workers(checked.cluster) as address:
        return ingest(checked, address)


@flow(name="marginals", flow_run_name=name_run)
def marginals_flow(config: str) -> Reference:
    """Count the co-occurrences of all pairs."""
    checked = load_config(config)
    with start_workers(checked.cluster) as address:
        counted = name_counted(find_base(checked))
        return count(checked, ingest(checked, address), address, counted)


@flow(name="fit", flow_run_name=name_run)
def fit_flow(config: str) -> Reference:
    """Fit a model to the marginals, and refine it by EM."""
    checked = load_config(config)
    with start_workers(checked.cluster) as address:
        stages: dict[str, Reference] = {}
        run_to_model(checked, address, stages)
        return stages["model"]


@flow(name="etl", flow_run_name=name_run)
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
    with record_run(checked) as run, start_workers(checked.cluster) as address:
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


def find_base(config: PipelineConfig) -> dict[str, Reference]:
    """References by stage of the last complete run, for the next one to build upon; none if there is no such run."""
    last = find_last_run(open_store(config), config.name)
    return {} if last is None else last.stages


def name_counted(base: dict[str, Reference]) -> tuple[Reference, Reference] | None:
    """Dataset of an earlier run and its counts; None if there is none."""
    return (base["dataset"], base["counts"]) if base else None


def run_to_model(config: PipelineConfig, address: str, stages: dict[str, Reference]) -> None:
    """Run the stages up to the refined model; each reference is added as its stage is reached."""
    base = find_base(config)
    dataset = stages["dataset"] = ingest(config, address)
    counts = stages["counts"] = count(config, dataset, address, name_counted(base))
    if config.model.rank == "auto":
        stages["rank"] = select(config, dataset, counts, address)
        config = settle(config, stages["rank"])
    start = stages["start"] = fit(config, counts, stages.get("rank"))
    stages["model"] = refine(config, dataset, counts, start, address)
