"""Flow for label logs: from labels of many workers to estimated true labels and workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pmflib.apps.crowd.stored.summaries import LabelSummary
from pmflib.base.errors import ConfigError
from pmflib.cluster.workers import share_workers
from pmflib.ingest.options import SourceOptions
from pmflib.store.run_records import RunRecord, find_last_run, name_labelling
from pmflib_flows.pipeline_flow import pipeline_flow
from pmflib_flows.recording import RunDraft, record_run
from pmflib_tasks.config import PipelineConfig, load_config
from pmflib_tasks.config.loading import draft_config
from pmflib_tasks.config.pipeline import draft_name
from pmflib_tasks.crowd.crowd_model import crowd_model, worker_pairs
from pmflib_tasks.crowd.known import find_known_labels, find_predictions
from pmflib_tasks.crowd.label_quality import check_label_quality
from pmflib_tasks.crowd.labels import find_labels
from pmflib_tasks.crowd.log_names import list_log_names
from pmflib_tasks.crowd.publish_labels import name_for_people, publish_labels
from pmflib_tasks.crowd.section import CrowdConfig, make_crowd
from pmflib_tasks.crowd.worker_model import choose_worker_model, find_warm_start, worker_model
from pmflib_tasks.guards.findings import accept, condense, hold_back
from pmflib_tasks.guards.quality import read_findings
from pmflib_tasks.guards.stored_checks import FINDINGS
from pmflib_tasks.small_runs import is_small_night
from pmflib_tasks.stage import open_store
from pmflib_tasks.stages.ingest import ingest


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
    crowd = checked.section(CrowdConfig)
    with (
        record_run(checked, "labels") as run,
        share_workers(checked.cluster, alone=is_small_night(checked)) as address,
    ):
        stages = run.stages
        label_names = list_log_names(checked, address)
        last = find_last_run(open_store(checked), name_labelling(checked.name))
        base = None if last is None else last.stages["dataset"]
        stages["dataset"] = ingest(checked, address, label_names, base=base)
        guard_labels(checked, run, last, accepted=accept_quality)
        if crowd.known is not None:
            stages["known"] = find_known_labels(checked, stages["dataset"], address)
        if crowd.begins_with_pairs:
            stages["pairs"] = worker_pairs(checked, stages["dataset"], address)
            stages["crowd_model"] = crowd_model(
                checked, stages["dataset"], stages["pairs"], address, stages.get("known")
            )
        known = stages.get("known")
        new = stages["worker_model"] = worker_model(
            checked,
            stages["dataset"],
            stages.get("crowd_model"),
            address,
            known,
            find_warm_start(checked),
        )
        decision = choose_worker_model(checked, stages["dataset"], new, address)
        if crowd.classifier is not None:
            stages["classifier"] = find_predictions(checked, stages["dataset"], address)
        stages["labels"] = find_labels(
            checked, stages["dataset"], decision.live, address, known, stages.get("classifier")
        )
        run.facts.note(**{**decision.facts, **publish_labels(checked, stages)})
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


def guard_labels(
    config: PipelineConfig, run: RunDraft, last: RunRecord | None, *, accepted: bool
) -> None:
    """Run the quality checks on the dataset of a run, and add the findings to its facts.

    Raises
    ------
    QualityError
        If a check stops the run.
    """
    stages = run.stages
    stages["quality"] = check_label_quality(config, stages["dataset"], last)
    findings = read_findings(config, stages["quality"])
    if accepted:
        findings = accept(findings)
    # records do not name workers
    shown = [replace(each, named=()) for each in condense(findings)]
    run.facts.note(quality=shown)
    named_in = f"{stages['quality'].path}/{FINDINGS} of the store"
    hold_back(findings, "pmf crowd", named_in)
