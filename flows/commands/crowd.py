"""Verb for label logs: crowd."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from flows.commands.drafting import relate
from flows.console import AsJson, orchestrated, out, print_json
from pmflib.config import draft_config, load_config, make_source


def crowd(
    path: Annotated[
        str, typer.Argument(help="Answers: file, folder, glob or URL; CSV or Parquet.")
    ],
    output: Annotated[Path, typer.Option(help="Folder for labels, workers and the store.")] = Path(
        "crowd"
    ),
    task: Annotated[str, typer.Option(help="Column that names the task.")] = "task",
    worker: Annotated[str, typer.Option(help="Column that names the worker.")] = "worker",
    label: Annotated[str, typer.Option(help="Column that holds the answer.")] = "label",
    classes: Annotated[
        str | None, typer.Option(help="Labels that there are: a,b,c. Default: all that occur.")
    ] = None,
    method: Annotated[
        str, typer.Option(help="auto, dawid_skene, mv_em, one_coin or balanced.")
    ] = "auto",
    delimiter: Annotated[str, typer.Option(help="Of CSV files; \\t is a tab.")] = ",",
    columns: Annotated[
        str | None, typer.Option(help="Names of the columns of files without a header: a,b,c.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the true labels of tasks that many workers have answered; Parquet.

    Run it again with the same --output after answers have come in: files that were read before are not read again,
    unless there are new workers.
    """
    source = make_source(
        {
            "path": path if "://" in path else str(Path(path).resolve()),
            "layout": "long",
            "sample": task,
            "variable": worker,
            "value": label,
            "delimiter": delimiter.replace("\\t", "\t"),
            "columns": None if columns is None else tuple(columns.split(",")),
        }
    )
    output.mkdir(parents=True, exist_ok=True)
    config = output / "pipeline.toml"
    config.write_text(draft_config(relate(source, output), rank=1), "utf-8")
    with orchestrated(load_config(config), as_json):
        from flows.crowd import crowd_flow

        named = None if classes is None else tuple(classes.split(","))
        facts = crowd_flow(str(config), method=method, classes=named)
    _hand_over(Path(facts["path"]), output)
    if as_json:
        print_json(facts)
        return
    for key in ("tasks", "answers", "workers", "classes", "prior", "passes", "converged"):
        out.print(f"{key}: {facts[key]}", markup=False, highlight=False)
    out.print(f"Labels: {output / 'labels'}, workers: {output / 'workers.parquet'}", markup=False)
    if "quarantine" in facts:
        out.print(f"Quarantined rows: {facts['quarantine']}", markup=False, highlight=False)


def _hand_over(found: Path, output: Path) -> None:
    """Copy labels and workers from the store to where a person looks for them."""
    shutil.rmtree(output / "labels", ignore_errors=True)
    shutil.copytree(found / "labels", output / "labels")
    shutil.copyfile(found / "workers.parquet", output / "workers.parquet")
