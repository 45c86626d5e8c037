"""Collection of artefacts that nothing needs any more, as a schedule runs it."""

from __future__ import annotations

from pmflib.store.collection import collect
from pmflib_flows.pipeline_flow import pipeline_flow
from pmflib_flows.run_log import log_line
from pmflib_tasks.config import load_config
from pmflib_tasks.stage import open_store


@pipeline_flow(name="gc")
def gc_flow(config: str, keep_runs: int = 30) -> dict[str, object]:
    """Delete artefacts that no kept run, live model or run under way needs; records of runs stay.

    Parameters
    ----------
    config
        Path of a pipeline configuration file; the other pipelines of its store keep theirs.
    keep_runs
        Runs to keep of every pipeline of the store.

    Returns
    -------
    What was deleted and what is kept, by kind: numbers and bytes.
    """
    found = collect(open_store(load_config(config)), keep_runs)
    log_line(f"{found.bytes:,} bytes freed")
    return found.to_json()
