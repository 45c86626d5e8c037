"""Command that examines a setup before, or instead of, a run: doctor."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from pmflib.core.errors import (
    ClusterError,
    ConfigError,
    MemoryPlanError,
    PmfError,
    SourceError,
    StoreError,
)
from pmflib_flows.console import AsJson, ConfigPath, out, print_json
from pmflib_flows.exit_codes import EXIT_CODES

FAULTS: dict[str, type[PmfError]] = {
    "configuration": ConfigError,
    "source": SourceError,
    "store": StoreError,
    "memory": MemoryPlanError,
    "infrastructure": ClusterError,
}
"""What a run would end with, by the class of a fault."""


def doctor(
    config: ConfigPath,
    address: Annotated[
        str,
        typer.Option(
            help="Dask scheduler to ask.",
            show_default="PMF_DASK_ADDRESS, or what pipeline.toml names",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Examine a setup: what a pipeline needs of this machine, its workers, its store and its server; nothing is run.

    One line each: ok, warn or FAIL, what was looked at, what was found, and what helps. The exit code is that of a run
    that ends for the first FAIL, and 0 where there is none.
    """
    from pmflib_flows.health_table import list_lines, sum_up
    from pmflib_flows.server_state import find_server_state
    from pmflib_tasks.operations.doctor.examination import examine

    lines = examine(config, address, find_server_state)
    failed = [line for line in lines if line.state == "FAIL"]
    code = EXIT_CODES[FAULTS[failed[0].fault]] if failed else 0
    if as_json:
        print_json({"exit_code": code, "lines": [asdict(line) for line in lines]})
    else:
        for text in list_lines(lines):
            out.print(text)
        out.print(sum_up(lines))
    if code:
        raise typer.Exit(code)
