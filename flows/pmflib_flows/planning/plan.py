"""Command that estimates the memory and time of a run: plan."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from pmflib.base.errors import ConfigError, MemoryPlanError
from pmflib_flows.console import AsJson, ConfigPath, load_pipeline, out, print_json
from pmflib_flows.exit_codes import EXIT_CODES

if TYPE_CHECKING:
    from pmflib_tasks.config import PipelineConfig
    from pmflib_tasks.planning.planning import RunPlan

COLUMNS = ("stage", "tasks", "memory of a worker", "of the client", "time", "by run")


def plan(
    config: ConfigPath,
    memory: Annotated[
        str,
        typer.Option(
            help="Memory per worker, for example 16GiB.",
            show_default="of the workers that a run has",
        ),
    ] = "",
    workers: Annotated[int, typer.Option(min=1, max=100_000, help="Number of workers.")] = 1,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Threads per worker.")] = 1,
    rows: Annotated[
        float | None,
        typer.Option(
            min=1, help="Number of rows, for example 1e9.", show_default="by the last run"
        ),
    ] = None,
    rank: Annotated[
        int | None,
        typer.Option(min=1, help="Number of latent states.", show_default="as configured"),
    ] = None,
    passes: Annotated[
        int | None,
        typer.Option(min=1, help="Number of EM passes.", show_default="as in earlier runs"),
    ] = None,
    accuracy: Annotated[
        float | None,
        typer.Option(
            help="Error of answers, such as .02: print the number of samples that it takes, by the live model."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate memory and time of the stages of a run; exit code 5 if a stage does not fit in memory.

    Nothing is run. Memory is computed as in a run; times are those of earlier runs, scaled to the number of rows.
    """
    if accuracy is not None:
        if memory or rows or rank or passes or max(workers, threads) > 1:
            raise ConfigError(
                f"--accuracy {accuracy} is planned from the live model alone; leave out all options but --json"
            )
        show_accuracy(load_pipeline(config), accuracy, as_json=as_json)
        return
    from pmflib.cluster.workers import share_workers
    from pmflib_tasks.planning.planning import PlannedWorkers, plan_run
    from pmflib_tasks.small_runs import describe_place, is_small

    pipeline = load_pipeline(config)
    alone = is_small(pipeline) and not memory
    if memory:
        there = PlannedWorkers.assume(workers, threads, read_size("--memory", memory))
    elif workers > 1 or threads > 1:
        raise ConfigError("--workers and --threads are of workers that are assumed; give --memory")
    else:
        with share_workers(pipeline.cluster, alone=alone):
            there = PlannedWorkers.find(pipeline)
    n_rows = None if rows is None else round(rows)
    found = plan_run(pipeline, there, rows=n_rows, rank=rank, passes=passes)
    show_plan(found, "" if memory else describe_place(pipeline, alone=alone), as_json=as_json)
    if found.refusals:
        raise typer.Exit(EXIT_CODES[MemoryPlanError])


def show_accuracy(config: PipelineConfig, accuracy: float, *, as_json: bool) -> None:
    """Print the number of samples for an error of answers, and the error of those of the live model."""
    from pmflib_tasks.planning.accuracy import plan_accuracy

    found, n_samples = plan_accuracy(config, accuracy)
    error = found.find_error(n_samples)
    if as_json:
        print_json(
            {"samples": found.n_rows, "accuracy": accuracy, "now": n_samples, "error": error}
        )
        return
    out.print(f"{found}; the {n_samples:,} of the live model leave {error:.3g}")


def read_size(name: str, text: str) -> int:
    """Parse a number of bytes: 16GiB, 200MB.

    Raises
    ------
    ConfigError
        If the text is not a number of bytes above 0.
    """
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        size = int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        size = 0
    if size <= 0:
        raise ConfigError(f"{name} is {text!r}; pass a number of bytes above 0, as 16GiB or 200MB")
    return size


def show_plan(found: RunPlan, where: str, *, as_json: bool) -> None:
    """Print a plan, and where a run would work; empty if its workers are assumed."""
    from pmflib.base.display.summary import format_seconds
    from pmflib.cluster.memory import format_bytes
    from pmflib_flows.tables import make_table

    there = found.workers
    worker = min(there.memory.workers, key=lambda each: each.spare)
    if as_json:
        print_json(
            {
                "stages": [asdict(stage) for stage in found.stages],
                "rows": found.rows,
                "where": where,
                "threads": there.n_threads,
                "worker_memory": worker.spare,
                "client_memory": there.memory.client,
                "shared": there.memory.is_shared,
                "seconds": found.seconds,
                "fits": not found.refusals,
                "refusals": found.refusals,
                "notes": found.notes,
            }
        )
        return
    table = [
        (
            stage.stage,
            "" if stage.tasks is None else f"{stage.tasks:,}",
            "" if stage.worker_bytes is None else format_bytes(stage.worker_bytes),
            "" if stage.client_bytes is None else format_bytes(stage.client_bytes),
            "" if stage.seconds is None else format_seconds(stage.seconds),
            str(stage.number or ""),
        )
        for stage in found.stages
    ]
    title = "A run" if found.rows is None else f"A run of {found.rows:,} rows"
    out.print(make_table(f"{title} with {there.n_threads:,} threads", COLUMNS, table, narrow=True))
    room = f"data may take {format_bytes(worker.spare)} in a worker"
    if there.memory.is_shared:
        room += ", which is the client as well"
    else:
        room += f", and {format_bytes(there.memory.client)} in the client"
    fits = "does not fit" if found.refusals else "fits"
    place = [f"stages run in {where}"] if where else []
    for line in (*place, f"{fits}: {room}", *found.refusals, *found.notes):
        out.print(line)
    if found.seconds is not None:
        out.print(f"in all: {format_seconds(found.seconds)}, as if all were done from scratch")
