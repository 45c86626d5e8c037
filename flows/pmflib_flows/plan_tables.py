"""Tables of the plan of a run, and of what it took beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Group

from pmflib.cluster.memory import format_bytes
from pmflib_flows.tables import make_table
from pmflib_tasks.operations.planning.stage_costs import StageCost
from pmflib_tasks.operations.planning.whole_run import RunPlan, show_bytes, show_seconds

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


USED = ("stage", "", "time", "processor time", "the client", "a worker", "read", "written")


def make_usage_table(facts: Mapping[str, Any]) -> Group:
    """Table of what the stages of a run took, each below what was planned for it before."""
    planned = facts.get("planned") or {}
    kinds: dict[str, Callable[[float], str]] = {
        "seconds": show_seconds,
        "processor_seconds": show_seconds,
        "client_memory": format_memory,
        "worker_memory": format_memory,
        "read_bytes": show_bytes,
        "written_bytes": show_bytes,
    }
    rows = []
    for took in facts["timings"]:
        lines = {"measured": took}
        if took["stage"] in planned:
            lines = {"planned": planned[took["stage"]], **lines}
        for index, (name, values) in enumerate(lines.items()):
            cells = [show(values.get(kind, 0)) for kind, show in kinds.items()]
            rows.append(("" if index else took["stage"], name, *cells))
    return make_table("What stages took", USED, rows, narrow=True)


def format_memory(n_bytes: float) -> str:
    """Write an amount of memory; "-" for none."""
    return format_bytes(round(n_bytes)) if n_bytes else "-"


def _name_rows(stage: StageCost) -> list[tuple[str, StageCost]]:
    if stage.least is None:
        return [(stage.stage, stage)]
    return [(stage.stage, stage.least), ("  up to", stage)]
