"""Scheduled deletion of artefacts that are no longer needed."""

from __future__ import annotations

from pmflib.store.care.collection import GRACE_HOURS, collect
from pmflib_flows.pipeline_flow import pipeline_flow
from pmflib_flows.run_log import log_line
from pmflib_tasks.config import load_config
from pmflib_tasks.stage import open_store


@pipeline_flow(name="gc")
def gc_flow(config: str, keep_runs: int = 30, older_than: float = GRACE_HOURS) -> dict[str, object]:
    """Delete artefacts that no kept run or live model needs and no run has used of late; run records are kept.

    Parameters
    ----------
    config
        Path of a pipeline configuration file; other pipelines of its store keep their runs as well.
    keep_runs
        Number of runs to keep for every pipeline of the store.
    older_than
        Age of what may be deleted, hours: more than the longest run takes.

    Returns
    -------
    Numbers and bytes of deleted and kept artefacts by kind.
    """
    found = collect(open_store(load_config(config)), keep_runs, older_than=older_than)
    log_line(f"{found.bytes:,} bytes freed")
    return found.to_json()
