"""Label logs: labels of many workers in, true labels and workers out."""

from __future__ import annotations

from typing import Any

from flows.guarding import hold_back_undecodable
from flows.pipeline_flow import pipeline_flow
from flows.recording import record_run
from pmflib.config import load_config
from pmflib.running.clients import share_workers
from tasks.census import census
from tasks.crowd_model import crowd_model
from tasks.ingest import ingest
from tasks.known import find_known_labels
from tasks.labels import find_labels
from tasks.publish_labels import locate_labels, publish_labels
from tasks.small_runs import is_small
from tasks.stage import open_store
from tasks.worker_pairs import worker_pairs


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
        censuses = census(checked, address)
        stages["dataset"] = ingest(checked, address, censuses)
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
        run.outcome, run.reason = "done", f"labels of {run.facts['tasks']:,} tasks"
    return run.facts | locate_labels(open_store(checked), run.stages)
