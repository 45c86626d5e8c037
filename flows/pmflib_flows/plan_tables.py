"""Tables of the plan of a run."""

from __future__ import annotations

from rich.console import Group

from pmflib.operations.planning.stage_costs import StageCost
from pmflib.operations.planning.whole_run import RunPlan, show_bytes, show_seconds
from pmflib.running.memory import format_bytes
from pmflib_flows.tables import make_table

TIMES = ("stage", "time", "efficiency", "tasks", "workers", "scheduler", "client", "limit")
SIZES = ("stage", "read", "written", "network", "files", "a worker", "the client")


def make_plan_tables(plan: RunPlan) -> list[Group]:
    """Tables of the stages of a run: time by the clock, and of all workers, scheduler and client; bytes and memory.

    A stage whose cost depends on what the run finds has two rows: at least, and up to.
    """
    shown = [row for stage in plan.stages if stage.wall_seconds for row in _name_rows(stage)]
    times = [
        (
            name,
            show_seconds(stage.wall_seconds),
            f"{stage.efficiency:.2f}" if stage.efficiency else "",
            f"{stage.tasks:,}",
            show_seconds(stage.worker_seconds),
            show_seconds(stage.scheduler_seconds),
            show_seconds(stage.client_seconds),
            stage.limit,
        )
        for name, stage in shown
    ]
    sizes = [
        (
            name,
            show_bytes(stage.read_bytes),
            show_bytes(stage.written_bytes),
            show_bytes(stage.network_bytes),
            f"{stage.files:,}",
            format_bytes(stage.worker_memory) if stage.worker_memory else "",
            format_bytes(stage.client_memory),
        )
        for name, stage in shown
    ]
    log, fit, cluster = plan.log, plan.fit, plan.cluster
    title = (
        f"{log.rows:,} rows, {log.samples:,} samples of {log.variables:,} variables and {log.levels:,} levels, rank "
        f"{fit.rank}, on {cluster.workers:,} workers of {cluster.threads} thread"
        f"{'s' if cluster.threads > 1 else ''} and {format_bytes(cluster.memory)}"
    )
    return [
        make_table(title, TIMES, times, narrow=True),
        make_table(
            "Bytes from and to the storage and between machines; memory",
            SIZES,
            sizes,
            narrow=True,
        ),
    ]


def _name_rows(stage: StageCost) -> list[tuple[str, StageCost]]:
    if stage.least is None:
        return [(stage.stage, stage)]
    return [(stage.stage, stage.least), ("  up to", stage)]
