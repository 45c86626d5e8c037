"""Memory that a stage needs, planned before it runs, and what a client and each of its workers have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pmflib.core.errors import MemoryPlanError
from pmflib.core.machine import USED_SHARE, MachineMemory, find_memory_limit


@dataclass(frozen=True)
class MemoryPlan:
    """Memory that a stage holds at once, in a worker and in the client.

    Parameters
    ----------
    stage
        Name of the stage, for messages.
    parts
        Bytes by purpose, in a worker.
    remedy
        Sentences on what a user can change.
    client_parts
        Bytes by purpose, in the client, which has them in memory of its own unless it is the worker as well.
    """

    stage: str
    parts: dict[str, int]
    remedy: str
    client_parts: dict[str, int] = field(default_factory=dict)

    @property
    def needed(self) -> int:
        """Total of a worker in bytes."""
        return sum(self.parts.values())

    def join_client(self) -> MemoryPlan:
        """The same for a worker that is the client: it holds the parts of both."""
        return MemoryPlan(self.stage, self.parts | self.client_parts, self.remedy)

    def add(self, *others: MemoryPlan) -> MemoryPlan:
        """The same with what others hold at the same time; this one names it."""
        parts, client_parts = dict(self.parts), dict(self.client_parts)
        for plan in others:
            parts |= plan.parts
            client_parts |= plan.client_parts
        return MemoryPlan(self.stage, parts, self.remedy, client_parts)

    def take_larger(self, other: MemoryPlan) -> MemoryPlan:
        """The same for two steps, one after the other: of the worker and of the client the larger part each."""
        first, second = (self, other) if self.needed >= other.needed else (other, self)
        ours, theirs = (sum(each.client_parts.values()) for each in (first, second))
        client = first.client_parts if ours >= theirs else second.client_parts
        return MemoryPlan(first.stage, first.parts, first.remedy, client)

    def check(self, limit: int) -> None:
        """Refuse a plan that does not fit.

        Parameters
        ----------
        limit
            Bytes that may be used.

        Raises
        ------
        MemoryPlanError
            With both numbers, what takes most, and a remedy.
        """
        if self.needed > limit:
            worst = max(self.parts, key=self.parts.__getitem__)
            raise MemoryPlanError(
                f"{self.stage} would need {format_bytes(self.needed)}, above the {format_bytes(limit)} it may use; "
                f"most of it ({format_bytes(self.parts[worst])}) is {worst}. {self.remedy}"
            )


def format_bytes(n: int) -> str:
    """Write a number of bytes with its binary unit: 1.5 GiB."""
    size = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


KEPT_PART = 2
"""Blocks may stay in the workers' memory from pass to pass if they take no more than one in so many bytes of what the
plan of a pass leaves."""
HELD_OUT_PART = 8
"""Held-out blocks may take one in so many bytes of what those of training may."""
OWN_BYTES = 320 << 20
"""Memory of a worker process with all that it has loaded and compiled, bytes, before it holds any data."""

PlanWorker = Callable[[int], MemoryPlan]
"""Plan of a stage for a worker of so many threads, and for the client."""


@dataclass(frozen=True)
class WorkerMemory:
    """Memory of a worker.

    Parameters
    ----------
    name
        Address of the worker, or words that stand for it.
    n_threads
        Number of its threads.
    spare
        Bytes that data may take.
    limit
        Bytes at which whoever started it kills it; 0 where nobody does.
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
        Each worker, at least one.
    client
        Bytes that the client's own data may take.
    is_shared
        Whether the worker is this very process: what the client holds is taken from the same memory.
    on_plan
        Called with every plan that was checked: workers that join later must fit it too.
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
            Bytes that it may use; 0 takes what `find_memory_limit` says.
        n_threads
            Number of threads that work.
        """
        limit = memory_limit or find_memory_limit()
        return cls((WorkerMemory("this process", n_threads, limit),), limit)

    @property
    def n_threads(self) -> int:
        """Threads of the worker that has most of them."""
        return max(worker.n_threads for worker in self.workers)

    @property
    def total(self) -> int:
        """Bytes that data may take in all workers together."""
        return sum(worker.spare for worker in self.workers)

    def check(self, plan_worker: PlanWorker) -> None:
        """Refuse a plan that does not fit a worker, or the client.

        Parameters
        ----------
        plan_worker
            Plan of a stage for a worker of so many threads.

        Raises
        ------
        MemoryPlanError
            With what is needed and what there is, where, and a remedy.
        """
        self.check_client(plan_worker(1))
        plans = {n: plan_worker(n) for n in {worker.n_threads for worker in self.workers}}
        for worker in self.workers:
            check_plan_fits(plans[worker.n_threads], worker, is_shared=self.is_shared)
        if self.on_plan is not None:
            self.on_plan(plan_worker)

    def check_client(self, plan: MemoryPlan) -> None:
        """Refuse a plan whose part of the client does not fit there.

        Raises
        ------
        MemoryPlanError
            As for `check`.
        """
        MemoryPlan(plan.stage, plan.client_parts, plan.remedy).check(self.client)

    def find_spare(self, plan_worker: PlanWorker) -> int:
        """Bytes that all workers together have left beside a plan, for data that each holds a share of.

        Threads hold equal shares of the data: a worker that has little left per thread limits what the others hold.
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
        """Bytes that blocks of training, and held-out ones, may take to stay in memory from pass to pass of a plan."""
        kept = self.find_spare(plan_worker) // KEPT_PART
        return kept, kept // HELD_OUT_PART


def check_plan_fits(plan: MemoryPlan, worker: WorkerMemory, *, is_shared: bool = False) -> None:
    """Refuse a plan that does not fit a worker.

    Parameters
    ----------
    plan
        Plan for as many threads as the worker has.
    worker
        The worker.
    is_shared
        Whether the worker is the client's process, and holds what the client does.

    Raises
    ------
    MemoryPlanError
        With what is needed and what there is, and a remedy.
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
    """Least memory limit of a worker process in which a plan fits, bytes: what data may use is a share of it."""
    return int((plan.needed + OWN_BYTES) / USED_SHARE) + 1


def read_workers(
    scheduler_info: Mapping[str, Any], machines: Mapping[str, MachineMemory], memory_limit: int
) -> list[WorkerMemory]:
    """Memory of each worker, from what a scheduler and the workers say.

    Parameters
    ----------
    scheduler_info
        What ``Client.scheduler_info`` gives for workers: by address, ``nthreads``, ``memory_limit`` and ``host``.
    machines
        By address, what the worker says of its machine; where it could not be asked, its limit alone counts.
    memory_limit
        Bytes that the data of each worker may take, as configured; 0 leaves it to the worker.
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
        # one without a limit that cannot be asked promises nothing
        spare = memory_limit or int(USED_SHARE * min(bounds, default=0)) - OWN_BYTES
        found.append(WorkerMemory(address, max(1, worker["nthreads"]), max(0, spare), limit))
    return found


def _weigh(plan: MemoryPlan, is_shared: bool) -> int:
    return plan.needed + (sum(plan.client_parts.values()) if is_shared else 0)


def _count(n_threads: int) -> str:
    return f"{n_threads} threads" if n_threads > 1 else "1 thread"
