"""Checks of machines: memory against what plans need, threads, linear algebra, open files, containers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pmflib.cluster.memory import (
    ClusterMemory,
    MemoryPlan,
    PlanWorker,
    WorkerMemory,
    check_plan_fits,
    format_bytes,
)
from pmflib.core.errors import MemoryPlanError
from pmflib_tasks.operations.doctor import HealthLine, fail, list_first, note, warn
from pmflib_tasks.operations.doctor.processes import ProcessState

LEAST_OPEN_FILES = 1024
"""Open files that a process should be allowed: sources, blocks and connections to other workers."""
FILES_PER_WORKER = 4
"""Open files that the client, or a worker, needs for each worker, on top: connections."""


@dataclass(frozen=True)
class WorkerMachine:
    """What counts of a worker for memory and threads.

    Parameters
    ----------
    memory
        Its address, its threads, and the bytes that its data may take.
    process
        What its process has.
    """

    memory: WorkerMemory
    process: ProcessState


def check_worker_memory(
    workers: Sequence[WorkerMemory], plans: Sequence[PlanWorker]
) -> list[HealthLine]:
    """Compare what the data of each worker may take with what the plans need.

    Parameters
    ----------
    workers
        All that are known.
    plans
        What stages need in a worker; none where there is no schema.
    """
    if not workers:
        return []
    refused: dict[str, str] = {}
    for worker in workers:
        for plan in plans:
            try:
                check_plan_fits(plan(worker.n_threads), worker)
            except MemoryPlanError as error:
                refused.setdefault(worker.name, str(error))
    if refused:
        others = f" ({len(refused)} of {len(workers)} workers are too small)"
        return [
            fail(
                "worker memory",
                next(iter(refused.values())) + (others if len(refused) > 1 else ""),
                "give workers more memory (dask worker --memory-limit), or fewer threads (--nthreads)",
                "memory",
            )
        ]
    least = min(workers, key=lambda worker: worker.spare)
    said = f"{format_bytes(least.spare)} for data at least"
    needs = [plan(worker.n_threads) for plan in plans for worker in workers]
    return [note("worker memory", f"{said}; {_name_most(needs)}")]


def check_memory(
    memory: ClusterMemory, plans: Sequence[PlanWorker], *, is_alone: bool
) -> HealthLine:
    """Compare what the client's data may take with what the plans need there.

    Parameters
    ----------
    memory
        The client's memory; of the process that does all the work, where there are no workers.
    plans
        What stages need; none where there is no schema.
    is_alone
        Whether there are no workers, and the client does the work.
    """
    needs = []
    try:
        for plan in plans:
            if is_alone:
                memory.check(plan)
                needs.append(plan(memory.n_threads).join_client())
            else:
                memory.check_client(plan(1))
                needs.append(MemoryPlan(plan(1).stage, plan(1).client_parts, ""))
    except MemoryPlanError as error:
        return fail("memory", str(error), "free memory, or raise cluster.memory_limit", "memory")
    return note("memory", f"{format_bytes(memory.client)} for data; {_name_most(needs)}")


def _name_most(needs: Sequence[MemoryPlan]) -> str:
    if not needs:
        return "what is needed follows from the schema"
    most = max(needs, key=lambda plan: plan.needed)
    return f"{most.stage} needs most, {format_bytes(most.needed)}"


def check_threads(workers: Sequence[WorkerMachine]) -> list[HealthLine]:
    """Compare the threads of all workers of a machine with its processors."""
    if not workers:
        return []
    hosts: dict[str, list[WorkerMachine]] = {}
    for each in workers:
        hosts.setdefault(each.process.host, []).append(each)
    crowded = []
    for host, there in hosts.items():
        n_threads = sum(each.memory.n_threads for each in there)
        processors = max(count_usable(each.process) for each in there)
        if n_threads > processors:
            crowded.append(f"{host} ({n_threads} threads on {processors:g} processors)")
    if crowded:
        return [
            warn(
                "threads",
                f"more threads than processors at {list_first(crowded)}: they wait for each other, and need more "
                "memory",
                "start fewer workers there, or fewer threads (dask worker --nworkers, --nthreads)",
            )
        ]
    total = sum(each.memory.n_threads for each in workers)
    return [
        note(
            "threads",
            f"{total} on {len(hosts)} machine{'' if len(hosts) == 1 else 's'}, none with more than processors",
        )
    ]


def check_own_threads(client: ProcessState, n_configured: int) -> HealthLine:
    """Compare the threads that a run would start here with the processors.

    Parameters
    ----------
    client
        This process.
    n_configured
        The option ``cluster.workers``; 0 for one per processor.
    """
    processors = count_usable(client)
    n_threads = n_configured or client.processors
    if n_threads > processors:
        return warn(
            "threads",
            f"a run would work with {n_threads} threads on {processors:g} processors",
            f"set cluster.workers to {max(1, int(processors))}",
        )
    return note(
        "threads", f"a run works here, with {n_threads} at most, on {processors:g} processors"
    )


def count_usable(process: ProcessState) -> float:
    """Processors that a process may keep busy: those it is bound to, and no more than its container gives it."""
    return min(process.processors, process.quota) if process.quota else process.processors


def check_linear_algebra(
    client: ProcessState, workers: Sequence[WorkerMachine]
) -> list[HealthLine]:
    """Check that libraries of linear algebra take one thread each, and are the same where results depend on them."""
    every = {"client": client} | {each.memory.name: each.process for each in workers}
    most = {
        name: max((library.n_threads for library in process.linear_algebra), default=0)
        for name, process in every.items()
    }
    busy = [f"{name} ({n_threads})" for name, n_threads in most.items() if n_threads > 1]
    if busy:
        return [
            warn(
                "linear algebra",
                f"more than one thread at {list_first(busy)}: threads of workers are in each other's way, and the last "
                "bits of results depend on the number",
                "set OMP_NUM_THREADS=1 there before the process starts",
            )
        ]
    libraries = sorted({f"{each.name} {each.version}".strip() for each in client.linear_algebra})
    if not libraries:
        return [note("linear algebra", "no library says its threads")]
    return [note("linear algebra", f"{', '.join(libraries)}, one thread each")]


def check_open_files(client: ProcessState, workers: Sequence[WorkerMachine]) -> HealthLine:
    """Check how many files processes may have open."""
    needed = LEAST_OPEN_FILES + FILES_PER_WORKER * len(workers)
    every = {"client": client} | {each.memory.name: each.process for each in workers}
    low = [
        f"{name} ({each.open_files})"
        for name, each in every.items()
        if 0 < each.open_files < needed
    ]
    if low:
        return warn(
            "open files",
            f"fewer than {needed} may be open at {list_first(low)}: connections to workers are refused",
            "raise the limit: ulimit -n 65536, or LimitNOFILE= of the service",
        )
    least = min((each.open_files for each in every.values() if each.open_files), default=0)
    return note("open files", f"{least:,} may be open at least" if least else "no limit")


def check_container(client: ProcessState, workers: Sequence[WorkerMachine]) -> HealthLine:
    """Say which limits containers set on memory and processors."""
    every = {"client": client} | {each.memory.name: each.process for each in workers}
    limited = []
    for name, each in every.items():
        limits = [format_bytes(each.container_memory)] if each.container_memory else []
        limits += [f"{each.quota:g} processors"] if each.quota else []
        if limits:
            limited.append(f"{name} ({', '.join(limits)})")
    return note(
        "containers",
        f"limits at {list_first(limited)}" if limited else "no limits on memory or processors",
    )
