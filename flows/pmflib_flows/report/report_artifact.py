"""The page of a flow run, and its summary as an artifact of Prefect."""

from __future__ import annotations

from pmflib.store.artefacts import Store
from pmflib.store.run_pages import keep_page
from pmflib.store.run_records import RunRecord
from pmflib_flows.run_log import log_line
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.prefect_runs import is_flow_run, make_artifact_key
from pmflib_tasks.stage import stage


def publish_report(config: PipelineConfig, store: Store, name: str, record: RunRecord) -> None:
    """Write the report page of a run, and show its summary in Prefect, in a flow run only.

    Parameters
    ----------
    config
        The pipeline.
    store
        Store of the pipeline.
    name
        Name of the pipeline, or of its labels.
    record
        Record of the run, already written. If nothing was new, the previous page is still valid and none is written.
    """
    if is_flow_run() and record.action in ("run", "labels") and record.outcome != "unchanged":
        _write_report(config, store, name, record.number)


@stage(name="report")
def _write_report(config: PipelineConfig, store: Store, name: str, number: int) -> None:
    try:
        from prefect.artifacts import create_markdown_artifact

        from pmflib_tasks.report.page import render_page
        from pmflib_tasks.report.run_report import gather_report
        from pmflib_tasks.report.sentences import write_summary

        report = gather_report(store, name, number)
        path = keep_page(store, name, number, render_page(report).encode("utf-8", "replace"))
        # browsers do not open files of another machine, nor local files from a page of a server
        create_markdown_artifact(
            key=make_artifact_key(name, "report"),
            markdown=write_summary(report, path),
            description=f"report of run {number}",
        )
    except Exception as error:
        # the run is over and its record is in the store: `pmf report` can write the page at any time
        log_line(f"the report of the run was not written: {error}")
