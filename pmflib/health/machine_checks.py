"""Checks of machines: memory against what plans need, threads, linear algebra, open files, containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pmflib.health.health_line import HealthLine, fail, list_some, note, warn
from pmflib.health.process_facts import ProcessFacts
from pmflib.running.memory_plan import MemoryPlan, format_bytes

LEAST_OPEN_FILES = 1024
"""Open files that a process should be allowed: sources, blocks and connections to other workers."""
FILES_PER_WORKER = 4
"""Open files that the client, or a worker, needs for each worker, on top: connections."""


@dataclass(frozen=True)
class WorkerMachine:
    """What counts of a worker for memory and threads.

    Parameters
    ----------
    address
        Where it listens.
    n_threads
        Its threads.
    usable
        Bytes that plans may use there.
    process
        What its process has.
    """

    address: str
    n_threads: int
    usable: int
    process: ProcessFacts


def check_worker_memory(
    workers: Sequence[WorkerMachine], plans: Mapping[int, Sequence[MemoryPlan]]
) -> list[HealthLine]:
    """Compare what workers may use with what the plans need.

    Parameters
    ----------
    workers
        All that are known.
    plans
        By number of threads of a worker, what stages need there; none where there is no schema.
    """
    if not workers:
        return []
    least = min(workers, key=lambda worker: worker.usable)
    if not any(plans.values()):
        return [
            note(
                "worker memory",
                f"{format_bytes(least.usable)} to use at least; what is needed follows from the schema",
            )
        ]
    needs = {n: max(each, key=lambda plan: plan.needed) for n, each in plans.items() if each}
    small = [each for each in workers if needs[each.n_threads].needed > each.usable]
    worst = max(needs.values(), key=lambda plan: plan.needed)
    if small:
        first = small[0]
        plan = needs[first.n_threads]
        part = max(plan.parts, key=plan.parts.__getitem__)
        return [
            fail(
                "worker memory",
                f"{plan.stage} needs {format_bytes(plan.needed)} of a worker with {first.n_threads} threads, above the "
                f"{format_bytes(first.usable)} to use at {list_some([each.address for each in small])}; most is {part}",
                "give workers more memory (dask worker --memory-limit), or fewer threads (--nthreads)",
                "memory",
            )
        ]
    return [
        note(
            "worker memory",
            f"{format_bytes(least.usable)} to use at least; {worst.stage} needs most, {format_bytes(worst.needed)}",
        )
    ]


def check_client_memory(usable: int, plans: Sequence[MemoryPlan]) -> HealthLine:
    """Compare what the client may use with what the plans need there.

    Parameters
    ----------
    usable
        Bytes.
    plans
        What stages need in the client; none where there is no schema.
    """
    if not plans:
        return note(
            "memory", f"{format_bytes(usable)} to use; what is needed follows from the schema"
        )
    worst = max(plans, key=lambda plan: plan.needed)
    if worst.needed > usable:
        part = max(worst.parts, key=worst.parts.__getitem__)
        return fail(
            "memory",
            f"{worst.stage} needs {format_bytes(worst.needed)} here, above the {format_bytes(usable)} to use; most is "
            f"{part}",
            worst.remedy,
            "memory",
        )
    return note(
        "memory",
        f"{format_bytes(usable)} to use; {worst.stage} needs most, {format_bytes(worst.needed)}",
    )


def check_threads(workers: Sequence[WorkerMachine]) -> list[HealthLine]:
    """Compare the threads of all workers of a machine with its processors."""
    if not workers:
        return []
    hosts: dict[str, list[WorkerMachine]] = {}
    for each in workers:
        hosts.setdefault(each.process.host, []).append(each)
    crowded = []
    for host, there in hosts.items():
        n_threads = sum(each.n_threads for each in there)
        processors = max(count_usable(each.process) for each in there)
        if n_threads > processors:
            crowded.append(f"{host} ({n_threads} threads on {processors:g} processors)")
    if crowded:
        return [
            warn(
                "threads",
                f"more threads than processors at {list_some(crowded)}: they wait for each other, and need more memory",
                "start fewer workers there, or fewer threads (dask worker --nworkers, --nthreads)",
            )
        ]
    total = sum(each.n_threads for each in workers)
    return [
        note(
            "threads",
            f"{total} on {len(hosts)} machine{'' if len(hosts) == 1 else 's'}, none with more than processors",
        )
    ]


def check_own_threads(client: ProcessFacts, n_wanted: int) -> HealthLine:
    """Compare the threads that a run would start here with the processors.

    Parameters
    ----------
    client
        This process.
    n_wanted
        The option ``cluster.workers``; 0 for one per processor.
    """
    processors = count_usable(client)
    n_threads = n_wanted or client.processors
    if n_threads > processors:
        return warn(
            "threads",
            f"a run would work with {n_threads} threads on {processors:g} processors",
            f"set cluster.workers to {max(1, int(processors))}",
        )
    return note(
        "threads", f"a run works here, with {n_threads} at most, on {processors:g} processors"
    )


def count_usable(process: ProcessFacts) -> float:
    """Processors that a process may keep busy: those it is bound to, and no more than its container gives it."""
    return min(process.processors, process.quota) if process.quota else process.processors


def check_linear_algebra(
    client: ProcessFacts, workers: Sequence[WorkerMachine]
) -> list[HealthLine]:
    """Check that libraries of linear algebra take one thread each, and are the same where results depend on them."""
    every = {"client": client} | {each.address: each.process for each in workers}
    most = {
        name: max((library.n_threads for library in process.linear_algebra), default=0)
        for name, process in every.items()
    }
    busy = [f"{name} ({n_threads})" for name, n_threads in most.items() if n_threads > 1]
    if busy:
        return [
            warn(
                "linear algebra",
                f"more than one thread at {list_some(busy)}: threads of workers are in each other's way, and the last "
                "bits of results depend on the number",
                "set OMP_NUM_THREADS=1 there before the process starts",
            )
        ]
    libraries = sorted({f"{each.name} {each.version}".strip() for each in client.linear_algebra})
    if not libraries:
        return [note("linear algebra", "no library says its threads")]
    return [note("linear algebra", f"{', '.join(libraries)}, one thread each")]


def check_open_files(client: ProcessFacts, workers: Sequence[WorkerMachine]) -> HealthLine:
    """Check how many files processes may have open."""
    needed = LEAST_OPEN_FILES + FILES_PER_WORKER * len(workers)
    every = {"client": client} | {each.address: each.process for each in workers}
    low = [
        f"{name} ({each.open_files})"
        for name, each in every.items()
        if 0 < each.open_files < needed
    ]
    if low:
        return warn(
            "open files",
            f"fewer than {needed} may be open at {list_some(low)}: connections to workers are refused",
            "raise the limit: ulimit -n 65536, or LimitNOFILE= of the service",
        )
    least = min((each.open_files for each in every.values() if each.open_files), default=0)
    return note("open files", f"{least:,} may be open at least" if least else "no limit")


def check_container(client: ProcessFacts, workers: Sequence[WorkerMachine]) -> HealthLine:
    """Say which limits containers set on memory and processors."""
    every = {"client": client} | {each.address: each.process for each in workers}
    limited = []
    for name, each in every.items():
        limits = [format_bytes(each.memory_limit)] if each.memory_limit else []
        limits += [f"{each.quota:g} processors"] if each.quota else []
        if limits:
            limited.append(f"{name} ({', '.join(limits)})")
    return note(
        "containers",
        f"limits at {list_some(limited)}" if limited else "no limits on memory or processors",
    )
