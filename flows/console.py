"""Parts that commands share: the terminal, common options, a Prefect API with progress bars."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from flows.server.embedded import prefect_api
from pmflib.config import PipelineConfig

# texts are wrapped by the terminal, if at all: what is written to a file can be searched and copied
out = Console(soft_wrap=True)
err = Console(stderr=True, soft_wrap=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
ConfigPath = Annotated[Path, typer.Argument(help="Pipeline configuration, pipeline.toml.")]


@contextmanager
def orchestrated(config: PipelineConfig, as_json: bool) -> Iterator[None]:
    """Open a Prefect API and, unless the output is JSON, show progress while a flow runs."""
    # the server starts at once, and is ready when the imports below are done
    api = prefect_api(Path(config.resolve(config.store.path)) / ".prefect")
    from flows.progress_bars import show_progress

    with api, show_progress(Console(stderr=True, quiet=as_json)):
        yield


def print_json(value: Any) -> None:
    """Print JSON on standard output."""
    print(json.dumps(value, ensure_ascii=False, indent=1))


def show_facts(facts: dict[str, Any], as_json: bool) -> None:
    """Print the facts of a run: tables, or JSON."""
    from flows.fact_tables import make_facts_tables

    if as_json:
        print_json(facts)
        return
    for table in make_facts_tables(facts):
        out.print(table)
    out.print(f"\nRun {facts['run']}: {facts['reason']}", markup=False, highlight=False)
    out.print(f"Live model {facts['live_model'][:12]}:", highlight=False)
    out.print(f"  {facts['live']}", markup=False, highlight=False)
    if "quarantine" in facts:
        out.print(f"Quarantined rows: {facts['quarantine']}", markup=False, highlight=False)
