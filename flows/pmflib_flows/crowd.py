"""Label logs: labels of many workers in, true labels and workers out."""

from __future__ import annotations

from typing import Any

from pmflib.config import PipelineConfig, load_config
from pmflib.crowd.pipeline.summaries import LabelSummary
from pmflib.ingest.dataset.accounts import Account
from pmflib.quality.findings import hold_back
from pmflib.quality.row_guards import check_reason
from pmflib.running.workers import share_workers
from pmflib.store.artefacts import Reference
from pmflib.store.run_records import find_last_run, name_labelling
from pmflib_flows.pipeline_flow import pipeline_flow
from pmflib_flows.recording import record_run
from pmflib_tasks.crowd_model import crowd_model
from pmflib_tasks.ingest import ingest
from pmflib_tasks.known import find_known_labels
from pmflib_tasks.labels import find_labels
from pmflib_tasks.log_names import list_log_names
from pmflib_tasks.publish_labels import locate_labels, publish_labels
from pmflib_tasks.small_runs import is_small
from pmflib_tasks.stage import open_store
from pmflib_tasks.worker_pairs import worker_pairs


@pipeline_flow(name="crowd")
def crowd_flow(config: str) -> dict[str, Any]:
    """Find the true labels of a label log.

    Parameters
    ----------
    config
        Path of a pipeline configuration file whose source is long: sample the task, variable the worker, value the
        label. Its section ``crowd`` names the method and the labels that there are.

    Returns
    -------
    Facts for people: where labels and workers are, what was found, rows read and set aside.
    """
    checked = load_config(config)
    with (
        record_run(checked, "labels") as run,
        share_workers(checked.cluster, alone=is_small(checked)) as address,
    ):
        stages = run.stages
        label_names = list_log_names(checked, address)
        last = find_last_run(open_store(checked), name_labelling(checked.name))
        base = None if last is None else last.stages["dataset"]
        stages["dataset"] = ingest(checked, address, label_names, base=base)
        hold_back_undecodable(checked, stages["dataset"])
        if checked.crowd.known is not None:
            stages["known"] = find_known_labels(checked, stages["dataset"], address)
        if checked.crowd.begins_with_pairs:
            stages["pairs"] = worker_pairs(checked, stages["dataset"], address)
            stages["crowd_model"] = crowd_model(checked, **stages, address=address)
        stages["labels"] = find_labels(
            checked, stages["dataset"], stages.get("crowd_model"), address, stages.get("known")
        )
        run.facts |= publish_labels(checked, stages)
        found = LabelSummary.find(run.facts)
        assert found is not None
        run.outcome, run.reason = "done", f"labels of {found.tasks:,} tasks"
    return run.facts | locate_labels(open_store(checked), run.stages)


def hold_back_undecodable(config: PipelineConfig, dataset: Reference) -> None:
    """Hold a label log back whose rows are not in its encoding, so far as the guard of that reason does not allow it.

    Raises
    ------
    QualityError
        If there are too many such rows.
    """
    entry = open_store(config).find(dataset.identity)
    if entry is not None:
        hold_back([check_reason("undecodable", Account.from_json(entry.summary), config.quality)])
