"""Flow for label logs: from labels of many workers to estimated true labels and workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pmflib.apps.crowd.stored.summaries import LabelSummary
from pmflib.base.errors import ConfigError
from pmflib.cluster.workers import share_workers
from pmflib.ingest.options import SourceOptions
from pmflib.store.run_records import name_labelling
from pmflib_flows.pipeline_flow import pipeline_flow
from pmflib_flows.recording import record_run
from pmflib_tasks.config import load_config
from pmflib_tasks.config.loading import draft_config
from pmflib_tasks.config.pipeline import draft_name
from pmflib_tasks.crowd.publish_labels import name_for_people, publish_labels
from pmflib_tasks.crowd.section import make_crowd
from pmflib_tasks.crowd.steps import STEPS
from pmflib_tasks.crowd.worker_model import choose_worker_model
from pmflib_tasks.small_runs import is_small_night
from pmflib_tasks.stage import open_store
from pmflib_tasks.steps import Walk


@pipeline_flow(name="crowd")
def crowd_flow(config: str, accept_quality: bool = False) -> dict[str, Any]:
    """Estimate the true labels of a label log.

    Parameters
    ----------
    config
        Path of a pipeline configuration file whose source is long: sample is the task, variable the worker, value the
        label. Section ``crowd`` gives the method and the possible labels.
    accept_quality
        Whether to accept data that fail a quality check, for this run only.

    Returns
    -------
    Facts for display: locations of labels and workers, findings, rows read and rejected.
    """
    checked = load_config(config)
    for section in checked.sections.values():
        if section.unlike_labels:
            raise ConfigError(section.unlike_labels)
    with (
        record_run(checked, "labels") as run,
        share_workers(checked.cluster, alone=is_small_night(checked)) as address,
    ):
        walk = Walk(
            checked,
            STEPS,
            address,
            run.stages,
            run.facts,
            live=run.live,
            accepted=accept_quality,
            history=name_labelling(checked.name),
        )
        new = walk.reach("quality", "worker_model")
        decision = choose_worker_model(checked, run.stages["dataset"], new, address)
        walk.live = decision.live
        walk.reach("labels")
        run.facts.note(**{**decision.facts, **publish_labels(checked, run.stages)})
        found = LabelSummary.find(run.facts)
        assert found is not None
        run.outcome, run.live, run.before = decision.outcome, decision.live, decision.before
        run.reason = f"labels of {found.tasks:,} tasks; {decision.reason}"
    said = {"run": run.number, "outcome": run.outcome, "reason": run.reason}
    return {**said, **run.facts, **name_for_people(open_store(checked), run.stages)}


def run_labels(source: SourceOptions, config: Path, data_only: bool) -> dict[str, Any]:
    """Draft the configuration of a label log into a file, and run it; no facts if ``data_only``."""
    sections = {"crowd": make_crowd({})}
    text = draft_config(source, rank=1, sections=sections, name=draft_name(config.parent))
    config.write_text(text, "utf-8")
    return {} if data_only else crowd_flow(str(config))
