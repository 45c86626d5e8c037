"""Command that writes the report of a run: report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pmflib.base.errors import StoreError
from pmflib_flows.commands.history import find_recorded_name, find_run
from pmflib_flows.console import AsJson, ConfigPath, load_pipeline, out, print_json


def report(
    config: ConfigPath,
    run: Annotated[
        str | None,
        typer.Argument(
            help="Number of a run (see `pmf history`), live or last. Default: the last run."
        ),
    ] = None,
    output: Annotated[Path, typer.Option(help="Output file; an existing file is replaced.")] = Path(
        "report.html"
    ),
    figures: Annotated[
        Path | None,
        typer.Option(help="Folder for PNG copies of the figures."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the report of a run as one HTML page: data, model or labels, scores, changes, checks and lineage."""
    from pmflib.store.care.exports import remember_export
    from pmflib.store.run_records import list_records
    from pmflib_tasks.report.figures import save_figures
    from pmflib_tasks.report.page import write_page
    from pmflib_tasks.report.run_report import choose_run, gather_report
    from pmflib_tasks.stage import open_store

    checked = load_pipeline(config)
    store = open_store(checked)
    name = find_recorded_name(store, checked.name)
    if run is None:
        chosen = choose_run(list_records(store, name))
        if chosen is None:
            raise StoreError(
                f"pipeline {checked.name!r} has not run yet; `pmf run` runs it, `pmf crowd` one for label logs"
            )
    else:
        chosen = find_run(store, name, run)
    found = gather_report(store, name, chosen.number)
    n_bytes = write_page(found, output)
    remember_export(store, "report", output, [output])
    paths = [] if figures is None else save_figures(found, figures)
    if figures is not None:
        remember_export(store, "figures", figures, paths)
    if as_json:
        written = {"run": chosen.number, "path": str(output), "bytes": n_bytes}
        print_json(written | {"figures": [str(each) for each in paths]})
        return
    out.print(f"Wrote the report of run {chosen.number} to {output} ({n_bytes / 1e6:.1f} MB)")
    if paths:
        out.print(f"Wrote {len(paths)} figures to {figures}")
