"""Memory required by a stage, planned before it runs, and memory available in a client and its workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pmflib.base.errors import MemoryPlanError
from pmflib.base.machine import USED_SHARE, MachineMemory, find_memory_limit


@dataclass(frozen=True)
class MemoryPlan:
    """Memory that a stage needs at once, in a worker and in the client.

    Parameters
    ----------
    stage
        Name of the stage, for messages.
    parts
        Bytes by purpose in a worker.
    remedy
        Sentences that tell a user what to change.
    client_parts
        Bytes by purpose in the client, which come from the same memory if the client is also the worker.
    """

    stage: str
    parts: dict[str, int]
    remedy: str
    client_parts: dict[str, int] = field(default_factory=dict)

    @property
    def needed(self) -> int:
        """Return the total of a worker in bytes."""
        return sum(self.parts.values())

    def join_client(self) -> MemoryPlan:
        """Return the plan for a worker that is also the client: the sum of both."""
        return MemoryPlan(self.stage, self.parts | self.client_parts, self.remedy)

    def add(self, *others: MemoryPlan) -> MemoryPlan:
        """Add the memory of other plans for the same time; the name of this one is kept."""
        parts, client_parts = dict(self.parts), dict(self.client_parts)
        for plan in others:
            parts |= plan.parts
            client_parts |= plan.client_parts
        return MemoryPlan(self.stage, parts, self.remedy, client_parts)

    def take_larger(self, other: MemoryPlan) -> MemoryPlan:
        """Combine with the plan of another step: the larger parts of both, for worker and client separately."""
        first, second = (self, other) if self.needed >= other.needed else (other, self)
        ours, theirs = (sum(each.client_parts.values()) for each in (first, second))
        client = first.client_parts if ours >= theirs else second.client_parts
        return MemoryPlan(first.stage, first.parts, first.remedy, client)

    def check(self, limit: int) -> None:
        """Check that the plan fits.

        Parameters
        ----------
        limit
            Available bytes.

        Raises
        ------
        MemoryPlanError
            With required and available bytes, the largest part, and a remedy.
        """
        if self.needed > limit:
            worst = max(self.parts, key=self.parts.__getitem__)
            raise MemoryPlanError(
                f"{self.stage} would need {format_bytes(self.needed)}, above the {format_bytes(limit)} it may use; "
                f"most of it ({format_bytes(self.parts[worst])}) is {worst}. {self.remedy}"
            )


def format_bytes(n: int) -> str:
    """Format a number of bytes with a binary unit, such as 1.5 GiB."""
    size = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


KEPT_PART = 2
"""Blocks may be kept in the workers' memory between passes if they need at most 1 / ``KEPT_PART`` of the bytes left by
the plan of a pass.
"""
HELD_OUT_PART = 8
"""Held-out blocks may use 1 / ``HELD_OUT_PART`` of the bytes allowed for training blocks."""
OWN_BYTES = 320 << 20
"""Memory of a worker process with all imported and compiled code, before it holds any data, bytes."""

PlanWorker = Callable[[int], MemoryPlan]
"""Plan of a stage for a worker with a given number of threads, and for the client."""


@dataclass(frozen=True)
class WorkerMemory:
    """Memory of a worker.

    Parameters
    ----------
    name
        Address of the worker, or a description.
    n_threads
        Number of its threads.
    spare
        Bytes available for data.
    limit
        Limit in bytes above which the worker is killed; 0 if there is none.
    """

    name: str
    n_threads: int
    spare: int
    limit: int = 0


@dataclass(frozen=True)
class ClusterMemory:
    """Memory of a client and of its workers.

    Parameters
    ----------
    workers
        Memory of each worker, at least one.
    client
        Bytes available for the client's own data.
    is_shared
        Whether the worker is this process, so that client and worker share memory.
    on_plan
        Called with every plan that is checked, because workers that join later must also fit it.
    """

    workers: tuple[WorkerMemory, ...]
    client: int
    is_shared: bool = True
    on_plan: Callable[[PlanWorker], None] | None = None

    @classmethod
    def here(cls, memory_limit: int = 0, n_threads: int = 1) -> ClusterMemory:
        """Memory of this process, whose threads do the work.

        Parameters
        ----------
        memory_limit
            Available bytes; 0 uses `find_memory_limit`.
        n_threads
            Number of working threads.
        """
        limit = memory_limit or find_memory_limit()
        return cls((WorkerMemory("this process", n_threads, limit),), limit)

    @property
    def n_threads(self) -> int:
        """Return the number of threads of the worker with most threads."""
        return max(worker.n_threads for worker in self.workers)

    @property
    def total(self) -> int:
        """Return the bytes available for data in all workers together."""
        return sum(worker.spare for worker in self.workers)

    def check(self, plan_worker: PlanWorker) -> None:
        """Check that a plan fits every worker and the client.

        Parameters
        ----------
        plan_worker
            Plan of a stage for a worker with a given number of threads.

        Raises
        ------
        MemoryPlanError
            With required and available bytes, where, and a remedy.
        """
        self.check_client(plan_worker(1))
        plans = {n: plan_worker(n) for n in {worker.n_threads for worker in self.workers}}
        for worker in self.workers:
            check_plan_fits(plans[worker.n_threads], worker, is_shared=self.is_shared)
        if self.on_plan is not None:
            self.on_plan(plan_worker)

    def check_client(self, plan: MemoryPlan) -> None:
        """Check that the client's part of a plan fits.

        Raises
        ------
        MemoryPlanError
            As for `check`.
        """
        MemoryPlan(plan.stage, plan.client_parts, plan.remedy).check(self.client)

    def find_spare(self, plan_worker: PlanWorker) -> int:
        """Return the total bytes that workers have left beside a plan, for data divided among them.

        Threads hold equal shares of the data, so a worker with little memory per thread limits the shares of all.
        """
        needed = {
            n_threads: _weigh(plan_worker(n_threads), self.is_shared)
            for n_threads in {worker.n_threads for worker in self.workers}
        }
        left = [
            (worker.spare - needed[worker.n_threads]) / worker.n_threads for worker in self.workers
        ]
        return int(max(0.0, min(left)) * sum(worker.n_threads for worker in self.workers))

    def find_kept(self, plan_worker: PlanWorker) -> tuple[int, int]:
        """Return the bytes that training and held-out blocks may use to stay in memory between passes of a plan."""
        kept = self.find_spare(plan_worker) // KEPT_PART
        return kept, kept // HELD_OUT_PART


def check_plan_fits(plan: MemoryPlan, worker: WorkerMemory, *, is_shared: bool = False) -> None:
    """Check that a plan fits a worker.

    Parameters
    ----------
    plan
        Plan for the worker's number of threads.
    worker
        The worker.
    is_shared
        Whether the worker is the client's process, and also holds the client's data.

    Raises
    ------
    MemoryPlanError
        With required and available bytes, and a remedy.
    """
    needed = _weigh(plan, is_shared)
    if needed <= worker.spare:
        return
    if is_shared:
        plan.join_client().check(worker.spare)
    parts = plan.parts
    worst = max(parts, key=parts.__getitem__)
    least = find_least_limit(plan)
    limit = f", of a limit of {format_bytes(worker.limit)}" if worker.limit else ""
    raise MemoryPlanError(
        f"{plan.stage} would need {format_bytes(needed)} in worker {worker.name}, above the "
        f"{format_bytes(max(0, worker.spare))} that its data may use{limit}; most of it "
        f"({format_bytes(parts[worst])}) is {worst}. A worker of {_count(worker.n_threads)} needs a memory limit of at "
        f"least {format_bytes(least)}. {plan.remedy}"
    )


def find_least_limit(plan: MemoryPlan) -> int:
    """Return the smallest memory limit of a worker process in which a plan fits, bytes; data may use a share of it."""
    return int((plan.needed + OWN_BYTES) / USED_SHARE) + 1


def read_workers(
    scheduler_info: Mapping[str, Any], machines: Mapping[str, MachineMemory], memory_limit: int
) -> list[WorkerMemory]:
    """Return the memory of each worker, from the reports of the scheduler and the workers.

    Parameters
    ----------
    scheduler_info
        Workers in the result of ``Client.scheduler_info``: by address, ``nthreads``, ``memory_limit`` and ``host``.
    machines
        Memory of each worker's machine by address; a worker without an entry is judged by its limit only.
    memory_limit
        Configured memory limit for the data of each worker, bytes; 0 uses the limits that they report.
    """
    hosts: dict[str, list[str]] = {}
    for address, worker in scheduler_info.items():
        hosts.setdefault(worker["host"], []).append(address)
    found = []
    for address, worker in scheduler_info.items():
        limit = int(worker["memory_limit"] or 0)
        bounds = [limit] if limit else []
        if address in machines:
            neighbours = hosts[worker["host"]]
            used = sum(machines[each].resident for each in neighbours if each in machines)
            total = min(machines[address].limit, machines[address].available + used)
            bounds.append(total // len(neighbours))
        # nothing can be assumed of a worker without a limit that does not answer
        spare = memory_limit or int(USED_SHARE * min(bounds, default=0)) - OWN_BYTES
        found.append(WorkerMemory(address, max(1, worker["nthreads"]), max(0, spare), limit))
    return found


def _weigh(plan: MemoryPlan, is_shared: bool) -> int:
    return plan.needed + (sum(plan.client_parts.values()) if is_shared else 0)


def _count(n_threads: int) -> str:
    return f"{n_threads} threads" if n_threads > 1 else "1 thread"
