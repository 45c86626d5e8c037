"""Memory of a client and of each of its workers: what they say they have, and whether a plan fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pmflib.errors import MemoryPlanError
from pmflib.running.memory_limits import USED_SHARE, MachineMemory, find_memory_limit
from pmflib.running.memory_plan import MemoryPlan, format_bytes

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
            check_worker(plans[worker.n_threads], worker, is_shared=self.is_shared)
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


def check_worker(plan: MemoryPlan, worker: WorkerMemory, *, is_shared: bool = False) -> None:
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
            held = sum(machines[each].held for each in neighbours if each in machines)
            total = min(machines[address].limit, machines[address].available + held)
            bounds.append(total // len(neighbours))
        # one without a limit that cannot be asked promises nothing
        spare = memory_limit or int(USED_SHARE * min(bounds, default=0)) - OWN_BYTES
        found.append(WorkerMemory(address, max(1, worker["nthreads"]), max(0, spare), limit))
    return found


def _weigh(plan: MemoryPlan, is_shared: bool) -> int:
    return plan.needed + (sum(plan.client_parts.values()) if is_shared else 0)


def _count(n_threads: int) -> str:
    return f"{n_threads} threads" if n_threads > 1 else "1 thread"
