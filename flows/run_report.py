"""The report of a run under Prefect: its page is in the store, and an artifact of the run links to it."""

from __future__ import annotations

from pathlib import Path

from flows.run_log import log_line
from pmflib.store.artefacts import Store
from pmflib.store.run_records import RunRecord
from tasks.prefect_artifacts import make_key
from tasks.prefect_runs import is_flow_run


def publish_report(store: Store, name: str, record: RunRecord) -> None:
    """Write the page of a run that Prefect has, and link to it; outside a flow run, do nothing.

    Parameters
    ----------
    store
        Store of the pipeline.
    name
        Name of the pipeline.
    record
        Record of the run, written. Where nothing was new, the page of the run before says it all, and none is written.
    """
    if not is_flow_run() or record.action not in ("run", "labels"):
        return
    if record.outcome == "unchanged":
        return
    try:
        from prefect.artifacts import create_link_artifact

        from pmflib.report.page import render_page
        from pmflib.report.run_facts import gather_report
        from pmflib.store.report_pages import keep_page

        page = render_page(gather_report(store, name, record.number)).encode("utf-8", "replace")
        path = keep_page(store, name, record.number, page)
        create_link_artifact(
            key=make_key(name, "report"),
            link=path if "://" in path else Path(path).as_uri(),
            link_text=f"Report of run {record.number}: {path}",
            description=f"report of run {record.number}",
        )
    except Exception as error:
        # the run is over, and its record is in the store: `pmf report` writes the page at any time
        log_line(f"the report of the run was not written: {error}")
