"""The command `pmf demo`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pmflib.base.errors import ConfigError
from pmflib_flows.console import AsJson, out, print_json, progress_shown
from pmflib_flows.pipeline_flow import import_quickly


class DemoData(StrEnum):
    """Subject of a demonstration."""

    ratings = "ratings"
    survey = "survey"
    labels = "labels"


def demo(
    about: Annotated[
        DemoData, typer.Argument(help="Kind of data: a rating log, a survey, or a label log.")
    ] = DemoData.ratings,
    folder: Annotated[Path, typer.Option(help="New folder for data, store and results.")] = Path(
        "demo"
    ),
    users: Annotated[
        int | None,
        typer.Option(
            min=100,
            help="Number of samples to generate: users, people, or tasks.",
            show_default="40000, 2000, or 500",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    data_only: Annotated[
        bool, typer.Option("--data-only", help="Write data and drafts only, without a run.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Generate data with known parameters and errors, run the pipeline on it, and compare the results."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"folder {str(folder)!r} is not empty; give --folder another name, or delete it"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with import_quickly():
        from pmflib_flows.demo.demo_runs import describe_demo, run_demo

    with progress_shown(as_json):
        found = run_demo(about.value, folder, users, seed, data_only=data_only)
    if as_json:
        print_json(found.to_json())
        return
    for part in describe_demo(about.value, found):
        out.print(part)
