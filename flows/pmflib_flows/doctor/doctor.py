"""The command `pmf doctor`, which examines a setup before a run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from pmflib.base.errors import (
    ClusterError,
    ConfigError,
    MemoryPlanError,
    PmfError,
    SourceError,
    StoreError,
)
from pmflib.base.texts import show_text
from pmflib_flows.console import AsJson, ConfigPath, out, print_json
from pmflib_flows.exit_codes import EXIT_CODES

FAULTS: dict[str, type[PmfError]] = {
    "configuration": ConfigError,
    "source": SourceError,
    "store": StoreError,
    "memory": MemoryPlanError,
    "infrastructure": ClusterError,
}
"""Error that a run would end with, by class of fault."""
STYLES = {"ok": "green", "warn": "yellow", "FAIL": "bold red"}
"""Style of each state in the table."""


def doctor(
    config: ConfigPath,
    address: Annotated[
        str,
        typer.Option(
            help="Address of the Dask scheduler.",
            show_default="PMF_DASK_ADDRESS, or the one in pipeline.toml",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Examine a setup before a run: data, store, this machine, Dask workers and Prefect server. Changes nothing.

    Each line has a state (ok, warn or FAIL), what was checked, what was found, and a remedy. The exit code is that of
    a run that ends for the first FAIL, and 0 if there is none.
    """
    from pmflib_flows.doctor.health import examine

    lines = examine(config, address)
    failed = [line for line in lines if line.state == "FAIL"]
    code = EXIT_CODES[FAULTS[failed[0].fault]] if failed else 0
    if as_json:
        print_json({"exit_code": code, "lines": [asdict(line) for line in lines]})
    else:
        width = max(len(line.what) for line in lines)
        for line in lines:
            remedy = f"  -> {line.remedy}" if line.remedy else ""
            text = show_text(f"  {line.what:{width}}  {line.found}{remedy}")
            state = Text(f"{line.state:4}", style=STYLES[line.state])
            out.print(state.append(text, style="default"))
        n_warned = sum(line.state == "warn" for line in lines)
        out.print(f"{len(lines)} checks: {len(failed)} failed, {n_warned} warnings.")
    if code:
        raise typer.Exit(code)
