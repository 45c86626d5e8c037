"""The flow that a schedule runs, and its first parts: each flow runs the stages up to its own.

A stage whose result is in the manifest returns at once, so a flow continues where an earlier one stopped.
"""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from pmflib.config import PipelineConfig, load_config
from pmflib.running.clients import start_workers
from pmflib.store.artefacts import Reference
from tasks.count import count
from tasks.evaluate import evaluate
from tasks.fit import fit
from tasks.ingest import ingest
from tasks.publish import publish
from tasks.refine import refine
from tasks.select import select, settle


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
        return count(checked, ingest(checked, address), address)


@flow(name="fit", flow_run_name=name_run)
def fit_flow(config: str) -> Reference:
    """Fit a model to the marginals, and refine it by EM."""
    checked = load_config(config)
    with start_workers(checked.cluster) as address:
        return run_to_model(checked, address)["model"]


@flow(name="etl", flow_run_name=name_run)
def etl(config: str) -> dict[str, Any]:
    """Ingest, count, fit, refine, evaluate, publish.

    Parameters
    ----------
    config
        Path of a pipeline configuration file.

    Returns
    -------
    Facts of the run, as `tasks.publish.publish` gives them.
    """
    checked = load_config(config)
    with start_workers(checked.cluster) as address:
        stages = run_to_model(checked, address)
        scores = evaluate(checked, stages["dataset"], stages["counts"], stages["model"], address)
        return publish(checked, {**stages, "scores": scores}, address)


def run_to_model(config: PipelineConfig, address: str) -> dict[str, Reference]:
    """Run the stages up to the refined model."""
    dataset = ingest(config, address)
    counts = count(config, dataset, address)
    stages = {"dataset": dataset, "counts": counts}
    if config.model.rank == "auto":
        stages["rank"] = select(config, dataset, counts, address)
        config = settle(config, stages["rank"])
    start = fit(config, counts, stages.get("rank"))
    model = refine(config, dataset, counts, start, address)
    return {**stages, "start": start, "model": model}
