"""Tables that are too wide for the counts of their pairs, refused before anything is read or counted."""

from __future__ import annotations

from pmflib.cluster.memory import format_bytes
from pmflib.cluster.workers import find_scheduler, is_alone
from pmflib.core.errors import MemoryPlanError
from pmflib.core.machine import USED_SHARE, count_processors, find_memory_limit
from pmflib.counting.stored_pairs import choose_n_runs, plan_counting
from pmflib.schema import Schema
from pmflib_tasks.config import PipelineConfig


def describe_misfit(stage: str, n_bytes: int, who: str, room: int) -> str:
    """Sentence of a plan on a stage that does not fit.

    Parameters
    ----------
    stage
        Name of the stage.
    n_bytes
        Bytes that it needs.
    who
        "a worker" or "the client".
    room
        Bytes that it may use there.
    """
    least = format_bytes(int(n_bytes / USED_SHARE) + 1)
    return (
        f"does not fit: {stage} needs {format_bytes(n_bytes)} in {who}, above the {format_bytes(room)} that it may "
        f"use; give {who} {least}"
    )


def check_width(
    schema: Schema, *, n_threads: int = 1, n_folds: int = 1, room: int | None = None
) -> None:
    """Refuse a schema whose counts of pairs do not fit the memory of this machine.

    Parameters
    ----------
    schema
        Variables and levels.
    n_threads
        Threads that count.
    n_folds
        Folds of the store.
    room
        Bytes that they may use together; None takes what `find_memory_limit` says.

    Raises
    ------
    MemoryPlanError
        With the sentence that `pmf plan` has for it, what takes the memory, and what to leave out.
    """
    room = find_memory_limit() if room is None else room
    plan = plan_counting(
        schema.n_levels, n_threads, choose_n_runs(n_folds, n_threads)
    ).join_client()
    if plan.needed <= room:
        return
    widest = sorted(schema, key=lambda variable: -variable.cardinality)[:3]
    shown = ", ".join(f"{each.name!r} ({each.cardinality:,})" for each in widest)
    raise MemoryPlanError(
        f"{describe_misfit('count', plan.needed, 'a worker', room)}: {schema.n_variables:,} variables have "
        f"{schema.n_levels:,} levels in all, most of them {shown}, and the pairs of all levels are counted. "
        f"{plan.remedy} A draft with fewer levels: pmf infer --max-levels, --bins, --min-count"
    )


def check_run_width(config: PipelineConfig, schema: Schema) -> None:
    """Refuse a pipeline on this machine whose counts of pairs do not fit its memory, before its data are read.

    Workers of a scheduler that runs already are asked for their memory when they count.

    Raises
    ------
    MemoryPlanError
        As for `check_width`.
    """
    cluster = config.cluster
    if find_scheduler(cluster):
        return
    n_workers = 1 if is_alone() else cluster.workers or count_processors()
    room = cluster.memory_limit or find_memory_limit()
    if cluster.processes and not cluster.memory_limit and not is_alone():
        room //= n_workers
    n_threads = 1 if cluster.processes else n_workers
    check_width(schema, n_threads=n_threads, n_folds=config.store.folds, room=room)
