"""The scheduled flow, and flows for its first parts, each of which runs all stages up to its own.

A stage whose result is in the manifest returns immediately, so a flow continues where an earlier one stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pmflib.cluster.workers import share_workers
from pmflib.store.artefacts import Reference
from pmflib_flows.pipeline_flow import pipeline_flow
from pmflib_flows.recording import follow_run, record_run
from pmflib_tasks.config import load_config
from pmflib_tasks.gate.publish import locate_for_people, publish
from pmflib_tasks.small_runs import describe_place, is_small
from pmflib_tasks.stage import open_store
from pmflib_tasks.stages.ingest import ingest
from pmflib_tasks.stages.order import list_steps
from pmflib_tasks.steps import Walk

GOALS = ("counts", "quality", "model", "scores", "marginals")
"""Artefacts that a run reaches, in this order, with all that they need."""


@contextmanager
def begin_walk(path: str) -> Iterator[Walk]:
    """Yield a run of a pipeline configuration file that makes no decision, and leaves no record."""
    config = load_config(path)
    with follow_run(config), share_workers(config.cluster, alone=is_small(config)) as address:
        yield Walk(config, list_steps(), address)


@pipeline_flow(name="ingest")
def ingest_flow(config: str) -> Reference:
    """Encode the sources of a pipeline configuration file into partitions."""
    with begin_walk(config) as walk:
        base = walk.find_original("dataset", walk.base)
        return ingest(walk.config, walk.address, base=base)


@pipeline_flow(name="marginals")
def marginals_flow(config: str) -> Reference:
    """Count the co-occurrences of all pairs."""
    with begin_walk(config) as walk:
        return walk.reach("counts")


@pipeline_flow(name="fit")
def fit_flow(config: str) -> Reference:
    """Fit a model to the marginals, and refine it by EM."""
    with begin_walk(config) as walk:
        return walk.reach("counts", "model")


@pipeline_flow(name="etl")
def etl(
    config: str, accept_quality: bool = False, rehash: bool = False, quick: bool = False
) -> dict[str, Any]:
    """Ingest, count, check quality, fit, refine, evaluate and publish.

    Parameters
    ----------
    config
        Path of a pipeline configuration file.
    accept_quality
        Whether to accept data that fail a quality check, for this run only.
    rehash
        Whether to read the contents of all sources, including those that seem unchanged.
    quick
        Whether to limit the choice of the rank to a minute.

    Returns
    -------
    Facts of the run for display: those of its record, its outcome and reason, and the location of the live model.
    """
    checked = load_config(config)
    if quick:
        checked = checked.shorten_rank_choice()
    with (
        record_run(checked) as run,
        share_workers(checked.cluster, alone=(alone := is_small(checked))) as address,
    ):
        run.facts.note(where=describe_place(checked, alone=alone))
        walk = Walk(
            checked,
            list_steps(),
            address,
            run.stages,
            run.facts,
            live=run.live,
            accepted=accept_quality,
            rehash=rehash,
        )
        walk.reach(*GOALS)
        decision = publish(checked, run.stages, address)
        run.outcome, run.reason = decision.outcome, decision.reason
        run.live, run.before = decision.live, decision.before
        run.facts.note(**decision.facts)
    assert run.live is not None
    paths = locate_for_people(open_store(checked), run.live, run.stages)
    found = {"run": run.number, "outcome": run.outcome, "reason": run.reason}
    return {**found, **run.facts, **paths}
