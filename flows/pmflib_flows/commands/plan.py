"""Command that says what a run will take on a cluster: plan."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pmflib.core.errors import ConfigError, MemoryPlanError
from pmflib_flows.console import AsJson, load_pipeline, out, print_json
from pmflib_flows.exit_codes import EXIT_CODES

if TYPE_CHECKING:
    from pmflib_tasks.operations.planning.sizes import FitSize, LogSize
    from pmflib_tasks.operations.planning.speeds import Speeds
    from pmflib_tasks.operations.planning.whole_run import RunPlan

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
"""Seconds of the units of times."""


def plan(
    config: Annotated[
        Path | None,
        typer.Argument(
            help="Pipeline configuration, pipeline.toml.",
            show_default="sizes are given by --rows and --variables",
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=100_000, help="Worker processes.")] = 1,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Threads of a worker.")] = 1,
    memory: Annotated[str, typer.Option(help="Memory of a worker.")] = "16GiB",
    client_memory: Annotated[str, typer.Option(help="Memory of the client.")] = "16GiB",
    rows: Annotated[
        float | None,
        typer.Option(min=1, help="Rows, in place of those of the files: 1e10.", show_default=False),
    ] = None,
    samples: Annotated[
        float | None, typer.Option(min=1, help="Samples of a long log.", show_default=False)
    ] = None,
    variables: Annotated[
        int | None,
        typer.Option(min=1, help="Variables, where there is no log yet.", show_default=False),
    ] = None,
    levels: Annotated[
        int, typer.Option(min=1, help="Levels of a variable, where there is no log yet.")
    ] = 5,
    observed: Annotated[
        float, typer.Option(min=0, max=1, help="Share of cells, where there is no log yet.")
    ] = 1.0,
    files: Annotated[
        int | None,
        typer.Option(
            min=1, help="Raw files.", show_default="those there are, or one for a gigabyte"
        ),
    ] = None,
    rank: Annotated[
        int | None, typer.Option(min=1, help="Latent states.", show_default="as configured")
    ] = None,
    passes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Passes of a run of EM.", show_default="those of earlier runs, or 15"
        ),
    ] = None,
    storage: Annotated[
        str, typer.Option(help="What the storage gives a worker in a second.")
    ] = "200MB",
    storage_total: Annotated[
        str | None,
        typer.Option(
            help="What it gives all workers together in a second.", show_default="no limit"
        ),
    ] = None,
    request_ms: Annotated[
        float, typer.Option(min=0, help="Milliseconds of a request to the storage.")
    ] = 0.0,
    deadline: Annotated[
        str | None,
        typer.Option(
            help="Time in which all must be done, as 6h or 90min: how many such workers are cheapest then.",
            show_default=False,
        ),
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure the speeds of this machine first.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what a run will take on a cluster: what fits, how long, and what will be the limit; exit code 5 if none fits.

    Nothing runs: sizes are those of the files, of their first rows, and of the last run, or given.
    """
    from pmflib_tasks.operations.planning.sizes import ClusterSize
    from pmflib_tasks.operations.planning.whole_run import RunPlan

    speeds = choose_speeds(storage, storage_total, request_ms, calibrate=calibrate)
    if calibrate and config is None and rows is None:
        show_speeds(speeds, as_json)
        return
    log, fit, notes, speeds = (
        invent_log(rows, variables, levels, observed, rank, speeds)
        if config is None
        else look_at_pipeline(config, speeds, calibrated=calibrate)
    )
    log = resize_log(log, rows, samples, files)
    fit = fit if rank is None else fit.with_rank(rank)
    fit = fit if passes is None else replace(fit, passes=passes)
    room, client_room = read_size("--memory", memory), read_size("--client-memory", client_memory)
    cluster = ClusterSize(workers, threads, round(room), round(client_room))
    found = RunPlan(log, fit, cluster, speeds)
    limit = None if deadline is None else read_seconds("--deadline", deadline)
    show_plan(found, notes, limit, as_json)
    if not found.fits:
        raise typer.Exit(EXIT_CODES[MemoryPlanError])


def choose_speeds(
    storage: str, storage_total: str | None, request_ms: float, *, calibrate: bool
) -> Speeds:
    """Speeds of the storage as they are given, and others as they are assumed or measured now."""
    from pmflib_tasks.operations.planning.speeds import Speeds

    total = float("inf")
    if storage_total is not None:
        total = read_size("--storage-total", storage_total)
    speeds = Speeds(
        storage_bytes=read_size("--storage", storage),
        storage_total=total,
        request_seconds=request_ms / 1000,
    )
    if not calibrate:
        return speeds
    from pmflib_tasks.operations.planning.calibration import measure_speeds

    return measure_speeds(speeds)


def resize_log(
    log: LogSize, rows: float | None, samples: float | None, files: int | None
) -> LogSize:
    """The log with what is given in place of what its files say."""
    from pmflib_tasks.operations.planning.pipeline_sizes import with_samples

    log = log if rows is None else log.scale_to(round(rows))
    log = log if samples is None else with_samples(log, round(samples))
    return log if files is None else replace(log, files=files)


def show_plan(found: RunPlan, notes: list[str], limit: float | None, as_json: bool) -> None:
    """Print a plan, and which number of workers is cheapest for a deadline, seconds."""
    from pmflib_flows.plan_tables import make_plan_tables
    from pmflib_tasks.operations.planning.whole_run import show_seconds

    cheapest = None if limit is None else found.find_cheapest(limit)
    if as_json:
        advice = {"deadline_workers": None if cheapest is None else cheapest.cluster.workers}
        print_json({**found.to_json(), "sources": notes, **(advice if limit else {})})
        return
    for table in make_plan_tables(found):
        out.print(table)
    out.print()
    for sentence in [*notes, *found.describe()]:
        out.print(sentence)
    if limit is not None:
        out.print(describe_deadline(cheapest, show_seconds(limit)))
    whole, most = show_seconds(found.wall_seconds), ""
    if (least := show_seconds(found.least_seconds)) != whole:
        whole, most = f"{least} to {whole}", " at most"
    hours = f"{found.worker_hours:,.2f} worker hours{most}"
    out.print(f"in all: {whole}, {hours}, within a factor of two")


def look_at_pipeline(
    path: Path, speeds: Speeds, *, calibrated: bool
) -> tuple[LogSize, FitSize, list[str], Speeds]:
    """Sizes of a pipeline, notes on where they are from, and speeds as its runs have shown them."""
    from pmflib_tasks.operations.planning.pipeline_sizes import (
        measure_fit,
        measure_log,
        read_last_run,
    )
    from pmflib_tasks.operations.planning.speeds import TLS_TIMES, Learnt
    from pmflib_tasks.stage import load_schema

    config = load_pipeline(path)
    last = read_last_run(config)
    schema = load_schema(config)
    log, notes = measure_log(config, schema, last)
    fit, more = measure_fit(config, schema, last)
    notes += more
    if not config.cluster.address or config.cluster.address.startswith("tls:"):
        # workers that a run starts itself have keys
        speeds = replace(speeds, task_seconds=TLS_TIMES * speeds.task_seconds)
    if not calibrated and (learnt := last.learnt) != Learnt():
        speeds = learnt.apply(speeds)
        names = ", ".join(sorted({*learnt.speeds, *learnt.loading}))
        notes.append(f"speeds: {names} as runs of this pipeline have shown them")
    return log, fit, notes, speeds


def invent_log(
    rows: float | None,
    variables: int | None,
    levels: int,
    observed: float,
    rank: int | None,
    speeds: Speeds,
) -> tuple[LogSize, FitSize, list[str], Speeds]:
    """Sizes of a wide log that is not there yet."""
    from pmflib_tasks.operations.planning.pipeline_sizes import ASSUMED_PASSES, ASSUMED_RANK
    from pmflib_tasks.operations.planning.sizes import FitSize, LogSize

    if rows is None or variables is None:
        raise ConfigError(
            "no pipeline.toml is given, and --rows or --variables is not either; give the one or both of the others"
        )
    n_rows = round(rows)
    # a label of one character, and a comma
    n_bytes = 2 * n_rows * variables
    log = LogSize(
        n_rows,
        n_rows,
        variables,
        variables * levels,
        observed,
        max(1, n_bytes // 10**9),
        n_bytes,
        n_bytes,
        code_bytes=1 if levels <= 127 else 2,
    )
    note = f"passes: {ASSUMED_PASSES} a run of EM are assumed; --passes gives another number"
    return log, FitSize(rank or ASSUMED_RANK, ASSUMED_PASSES), [note], speeds


def read_size(name: str, text: str) -> float:
    """Read a number of bytes: 16GiB, 200MB.

    Raises
    ------
    ConfigError
        If it is none, or not above 0.
    """
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        size = float(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        size = 0.0
    if size <= 0:
        raise ConfigError(f"{name} is {text!r}; give a number of bytes above 0, as 16GiB or 200MB")
    return size


def read_seconds(name: str, text: str) -> float:
    """Read a time: 6h, 90min, 45s, 2d.

    Raises
    ------
    ConfigError
        If it is none, or not above 0.
    """
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(s|min|h|d)\s*", text)
    seconds = 0.0 if match is None else float(match[1]) * UNITS[match[2]]
    if seconds <= 0:
        raise ConfigError(f"{name} is {text!r}; give a time above 0, as 6h, 90min or 45s")
    return seconds


def describe_deadline(cheapest: RunPlan | None, limit: str) -> str:
    """Sentence on how many workers are enough for a deadline, and cheapest."""
    from pmflib_tasks.operations.planning.whole_run import MOST_WORKERS, show_seconds

    if cheapest is None:
        return (
            f"deadline: no number of such workers up to {MOST_WORKERS:,} is done in {limit}; see what limits the run, "
            "or give workers more memory"
        )
    n_workers, took = cheapest.cluster.workers, show_seconds(cheapest.wall_seconds)
    named = "1 such worker" if n_workers == 1 else f"{n_workers:,} such workers"
    return (
        f"deadline: in {limit}, {named} take the fewest worker hours: "
        f"{cheapest.worker_hours:,.2f}, in {took}"
    )


def show_speeds(speeds: Speeds, as_json: bool) -> None:
    """Print speeds of this machine."""
    from pmflib_flows.tables import make_table
    from pmflib_tasks.operations.planning.speeds import BY_STAGE

    values: dict[str, object] = {
        name: value
        for name, value in asdict(speeds).items()
        if value != float("inf") and name not in BY_STAGE
    }
    if as_json:
        print_json(values)
        return
    rows = [(name, f"{value:.3g}") for name, value in values.items()]
    out.print(make_table("Speeds", ("speed", "value"), rows))
