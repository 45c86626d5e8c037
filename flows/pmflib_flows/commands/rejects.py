"""Command that writes rejected rows to a file: quarantine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pmflib.base.errors import StoreError
from pmflib_flows.console import AsJson, ConfigPath, load_pipeline, out, print_json


def quarantine(
    config: ConfigPath,
    output: Annotated[
        Path, typer.Option(help="Output file, .parquet, .csv, .sav, .zsav or .dta.")
    ] = Path("quarantine.parquet"),
    as_json: AsJson = False,
) -> None:
    """Write the rows that do not fit the schema to a file: file, row, reason, column and raw text."""
    from pmflib.ingest.dataset.quarantine import export_quarantine
    from pmflib.ingest.source_paths import check_output
    from pmflib.store.care.exports import remember_export
    from pmflib.store.run_records import find_last_run, name_labelling
    from pmflib.store.table_files import check_suffix, hold_output
    from pmflib_tasks.stage import open_store

    check_suffix(output)
    checked = load_pipeline(config)
    check_output(checked.source_paths, output, checked.source.suffixes)
    store = open_store(checked)
    runs = [find_last_run(store, name) for name in (checked.name, name_labelling(checked.name))]
    datasets = [run.stages["dataset"] for run in runs if run is not None]
    if not datasets:
        raise StoreError(f"pipeline {checked.name!r} has no complete run yet; `pmf run` makes one")
    with hold_output(output):
        n_rows = export_quarantine(store, datasets[0], output)
        remember_export(store, "quarantine", output, [output])
    if as_json:
        print_json({"rows": n_rows, "path": str(output)})
    else:
        out.print(f"Wrote {n_rows:,} rows to {output}")
