"""Verb for label logs: crowd."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.commands.drafting import relate
from flows.console import AsJson, orchestrated, out, print_json
from pmflib.config import PipelineConfig, draft_config, load_config, make_source
from pmflib.errors import ConfigError

COLUMNS = {"sample": "task", "variable": "worker", "value": "label"}
"""Option of the command for each column that a pipeline's source names, and the column's name by default."""
NOTE = (
    "`pmf crowd` works with this file from now on, and never changes it: [source], [store], [em] and [cluster] count; "
    "schema.json is written anew from the answers"
)


def crowd(
    path: Annotated[
        str | None,
        typer.Argument(
            help="Answers: file, folder, glob or URL; CSV or Parquet. Default: what pipeline.toml says."
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option(help="Folder for labels, workers, pipeline.toml and the store.")
    ] = Path("crowd"),
    task: Annotated[
        str | None, typer.Option(help="Column that names the task.", show_default="task")
    ] = None,
    worker: Annotated[
        str | None, typer.Option(help="Column that names the worker.", show_default="worker")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Column that holds the answer.", show_default="label")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Labels that there are: a,b,c. Default: all that occur.")
    ] = None,
    method: Annotated[
        str, typer.Option(help="auto, dawid_skene, mv_em, one_coin or balanced.")
    ] = "auto",
    delimiter: Annotated[
        str | None, typer.Option(help="Of CSV files; \\t is a tab.", show_default=",")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Names of the columns of files without a header: a,b,c.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the true labels of tasks that many workers have answered; Parquet.

    Run it again with the same --output after answers have come in: files that were read before are not read again. A
    pipeline.toml that is there is used as it is.
    """
    given: dict[str, Any] = {
        "path": path if path is None or "://" in path else str(Path(path).resolve()),
        "sample": task,
        "variable": worker,
        "value": label,
        "delimiter": None if delimiter is None else delimiter.replace("\\t", "\t"),
        "columns": None if columns is None else tuple(columns.split(",")),
    }
    given = {field: value for field, value in given.items() if value is not None}
    file = output / "pipeline.toml"
    if file.exists():
        _check_agreement(load_config(file), file, given)
    else:
        _draft(file, given)
    with orchestrated(load_config(file), as_json):
        from flows.crowd import crowd_flow

        named = None if classes is None else tuple(classes.split(","))
        facts = crowd_flow(str(file), method=method, classes=named)
    _hand_over(Path(facts["path"]), output)
    if as_json:
        print_json(facts)
        return
    for key in ("tasks", "answers", "workers", "classes", "prior", "passes", "converged"):
        out.print(f"{key}: {facts[key]}", markup=False, highlight=False)
    out.print(f"Labels: {output / 'labels'}, workers: {output / 'workers.parquet'}", markup=False)
    if "quarantine" in facts:
        out.print(f"Quarantined rows: {facts['quarantine']}", markup=False, highlight=False)


def _draft(file: Path, given: Mapping[str, Any]) -> None:
    """Write a configuration for the options given."""
    if "path" not in given:
        raise ConfigError(
            f"no PATH is given, and there is no {str(file)!r} that names one; say where the answers are"
        )
    source = make_source({"layout": "long", **COLUMNS, **given})
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(draft_config(relate(source, file.parent), rank=1, notes=[NOTE]), "utf-8")


def _check_agreement(config: PipelineConfig, file: Path, given: Mapping[str, Any]) -> None:
    """Refuse options that say something else than the configuration that is there."""
    if config.source.layout != "long":
        raise ConfigError(
            f"source.layout of {str(file)!r} is {config.source.layout!r}; answers are laid out 'long': give --output "
            "another folder, or mend the file"
        )
    for field, value in given.items():
        known = getattr(config.source, field)
        if field == "path" and isinstance(known, str) and "://" not in known:
            known = str(Path(config.resolve(known)).resolve())
        if known != value:
            option = "PATH" if field == "path" else f"--{COLUMNS.get(field, field)}"
            raise ConfigError(
                f"{option} is {value!r}, but source.{field} of {str(file)!r} is {known!r}; leave {option} out, change "
                "the file, or give --output another folder"
            )


def _hand_over(found: Path, output: Path) -> None:
    """Copy labels and workers from the store to where a person looks for them."""
    shutil.rmtree(output / "labels", ignore_errors=True)
    shutil.copytree(found / "labels", output / "labels")
    shutil.copyfile(found / "workers.parquet", output / "workers.parquet")
