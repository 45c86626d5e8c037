"""Monitoring the workers of a client: new workers are checked, and waiting for workers is limited."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Protocol

from pmflib.base.errors import (
    ClusterError,
    ClusterWarning,
    ConfigError,
    LostSchedulerError,
    MemoryPlanError,
    PmfError,
)
from pmflib.base.events import Notice, find_listeners, send_event
from pmflib.base.machine import MachineMemory
from pmflib.cluster.memory import (
    ClusterMemory,
    MemoryPlan,
    PlanWorker,
    WorkerMemory,
    check_plan_fits,
    format_bytes,
    read_workers,
)
from pmflib.cluster.task_plans import name_step
from pmflib.cluster.versions import SAME_EVERYWHERE, Difference, compare_versions, find_versions

LOOK_SECONDS = 1.0
"""Interval between checks of the workers, seconds."""
SILENT_SECONDS = 5.0
"""Time without any worker after which the client reports that it is waiting, seconds."""

LEAST_PLAN = MemoryPlan("any stage", {"blocks of samples": 64 << 20}, "Give it more memory.")
"""Memory that every worker must have."""


class Requirement(Protocol):
    """A requirement on workers, such as access to a store, that is checked on each of them."""

    def find_obstacle(self) -> PmfError | None:
        """Return why this process does not meet the requirement; None if it does."""

    def refuse_unable(self, found: Mapping[str, PmfError | None]) -> None:
        """Raise an error that names the workers with an obstacle, if any; obstacles are keyed by address."""


@dataclass(frozen=True)
class WorkerDescription:
    """Description of a worker, reported by itself.

    Parameters
    ----------
    versions
        Versions of Python and of packages, from `find_versions`.
    memory
        Memory of its machine.
    obstacles
        For each requirement, why the worker does not meet it; None if it does.
    """

    versions: Mapping[str, str]
    memory: MachineMemory
    obstacles: Mapping[Requirement, PmfError | None]


def describe_worker(required: Sequence[Requirement]) -> WorkerDescription:
    """Describe this process, and check requirements."""
    obstacles = {each: each.find_obstacle() for each in required}
    return WorkerDescription(find_versions(), MachineMemory.read(), obstacles)


def _count(addresses: Sequence[str]) -> str:
    """Format workers: the address of one, or the number of several."""
    return f"worker {addresses[0]}" if len(addresses) == 1 else f"{len(addresses)} workers"


class Membership:
    """Monitor of the workers of a client.

    Parameters
    ----------
    client
        Dask client.
    address
        Address of its scheduler, for messages.
    patience
        Maximum time to wait for a worker if there is none, seconds.
    memory_limit
        Memory limit for the data of each worker, bytes; 0 uses the limits that they report.
    """

    def __init__(self, client: Any, address: str, patience: float, memory_limit: int = 0) -> None:
        self._client, self._address, self._patience = client, address, patience
        self._memory_limit = memory_limit
        self._plan_worker: PlanWorker | None = None
        self._required: list[Requirement] = []
        self._workers: dict[str, WorkerMemory] = {}
        self._lock = threading.RLock()
        self._over = threading.Event()
        # listeners of the run hear this thread's events
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._watch,), daemon=True, name="membership"
        )
        self.error: PmfError | None = None

    def start(self) -> None:
        """Wait for the first worker, check all workers, and monitor them from now on.

        Raises
        ------
        ClusterError
            If none joins.
        ConfigError
            If one has another version of this package.
        """
        started, asked = time.monotonic(), None
        while not self._client.nthreads():
            # an adaptive cluster starts its first worker when a task is waiting, and tasks wait for its description
            asked = asked or self._client.submit(
                abs, 0, key=(name_step(abs, "first-worker"), "ask")
            )
            self._wait_for_workers(time.monotonic() - started)
            time.sleep(0.1)
        self._check_new()
        self._thread.start()

    def stop(self) -> None:
        """Stop monitoring."""
        self._over.set()

    def require(self, requirement: Requirement) -> None:
        """Check that all workers meet a requirement, including those that join later.

        Raises
        ------
        ConfigError
            If one does not.
        """
        with self._lock:
            if requirement in self._required:
                return
            self._required.append(requirement)
            self._check_descriptions(self._ask(list(self._workers), [requirement]))

    def read_memory(self) -> ClusterMemory:
        """Return the memory of the current workers and of this client."""
        with self._lock:
            workers = tuple(self._workers.values())
        here = ClusterMemory.here()
        return ClusterMemory(workers or here.workers, here.client, False, self._keep_plan)

    def explain(self, error: BaseException) -> BaseException:
        """Return a user-facing error in place of one raised by work on these workers."""
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        if self.error is not None:
            return self.error
        if isinstance(error, KilledWorker):
            return self._explain_killed(error.task, error.last_worker, error.allowed_failures + 1)
        if isinstance(error, PmfError):
            # a worker that has just joined may be the cause
            return self._find_misfit() or error
        reason = error.reason if isinstance(error, FutureCancelledError) else ""
        if reason == "scheduler-connection-lost" or self._client.status != "running":
            return LostSchedulerError(
                f"the Dask scheduler at {self._address} was lost or cannot be reached ({type(error).__name__}); start "
                "it again, then run the same command to continue"
            )
        if reason:
            return ClusterError(
                f"tasks at {self._address} were cancelled: {reason}; run again to continue"
            )
        return error

    def _keep_plan(self, plan_worker: PlanWorker) -> None:
        with self._lock:
            self._plan_worker = plan_worker

    def _watch(self) -> None:
        """Check the workers regularly until the end or an error."""
        none_since: float | None = None
        while not self._over.wait(LOOK_SECONDS) and self._client.status != "closed":
            try:
                if self._client.nthreads():
                    none_since = None
                    self._check_new()
                else:
                    none_since = none_since or time.monotonic()
                    self._wait_for_workers(time.monotonic() - none_since)
            except PmfError as error:
                self._give_up(error)
                return
            except Exception:
                # if the scheduler is lost, the client raises an error wherever a result is awaited
                continue

    def _give_up(self, error: PmfError) -> None:
        """Cancel all present and future requests to these workers.

        The client stays open, because a result awaited on a client that is closed meanwhile never arrives.
        """
        from distributed import Future

        self.error = error
        while True:
            waited = [Future(key, self._client) for key in list(self._client.futures)]
            self._client.cancel(waited, force=True)
            if self._over.wait(LOOK_SECONDS) or self._client.status == "closed":
                return

    def _wait_for_workers(self, seconds: float) -> None:
        if seconds >= self._patience:
            raise ClusterError(
                f"0 workers at {self._address}: none joined within {self._patience:g} seconds ([cluster] "
                "patience); start some there (dask worker), then run again to continue"
            )
        limit = f"{self._patience:g} seconds ([cluster] patience)"
        if find_listeners(Notice):
            if seconds >= SILENT_SECONDS:
                text = f"no workers for {seconds:.0f} s: waiting for up to {limit}"
                send_event(Notice(text, is_waiting=True))
        elif SILENT_SECONDS <= seconds < SILENT_SECONDS + LOOK_SECONDS:
            warnings.warn(
                f"0 workers at {self._address}: waiting for up to {limit}",
                ClusterWarning,
                stacklevel=2,
            )

    def _check_new(self) -> None:
        """Check workers that have joined."""
        with self._lock:
            now = set(self._client.nthreads())
            new = sorted(now - set(self._workers))
            lost = sorted(set(self._workers) - now)
            self._workers = {k: each for k, each in self._workers.items() if k in now}
            if lost:
                left = f"{len(now)} left; what {'it' if len(lost) == 1 else 'they'} had is computed again"
                send_event(Notice(f"{_count(lost)} lost, {left}"))
            if not new:
                return
            known = self._client.scheduler_info(n_workers=-1)["workers"]
            stated = {address: known[address] for address in new if address in known}
            # a worker killed right after its start does not answer; its own error message is shown
            for worker in read_workers(stated, {}, self._memory_limit):
                if worker.limit:
                    self._check_memory(worker)
            described = self._check_descriptions(self._ask(new, self._required))
            machines = {address: each.memory for address, each in described.items()}
            for worker in read_workers(known, machines, self._memory_limit):
                if worker.name in described:
                    self._check_memory(worker)
                    self._workers[worker.name] = worker
            if self._thread.is_alive():
                send_event(Notice(f"{_count(new)} joined: {len(now)} now"))

    def _check_memory(self, worker: WorkerMemory) -> None:
        if self._plan_worker is not None:
            check_plan_fits(self._plan_worker(worker.n_threads), worker)
        elif not self._memory_limit:
            check_plan_fits(LEAST_PLAN, worker)

    def _ask(self, workers: list[str], required: Sequence[Requirement]) -> dict[str, object]:
        """Return the descriptions of workers, or their errors; workers that have left are omitted."""
        said = self._client.run(describe_worker, required, workers=workers, on_error="return")
        return {address: each for address, each in said.items() if not isinstance(each, OSError)}

    def _check_descriptions(self, said: Mapping[str, Any]) -> dict[str, WorkerDescription]:
        ours = find_versions()
        differing: dict[Difference, list[str]] = {}
        for address, reply in sorted(said.items()):
            if isinstance(reply, Exception):
                raise ConfigError(
                    f"worker {address} cannot run pmflib {ours['pmflib']}: {type(reply).__name__}: {reply}; "
                    f"{SAME_EVERYWHERE}"
                )
            for difference in compare_versions(ours, reply.versions):
                if difference.is_breaking:
                    said_of_it = difference.describe(f"worker {address}")
                    raise ConfigError(f"{said_of_it}; {SAME_EVERYWHERE}")
                differing.setdefault(difference, []).append(address)
        for difference, where in differing.items():
            first = f"worker {where[0]}" + (f" and {len(where) - 1} more" if len(where) > 1 else "")
            warnings.warn(
                f"{difference.describe(first)}; {SAME_EVERYWHERE}", ClusterWarning, stacklevel=2
            )
        for each in self._required:
            each.refuse_unable({a: reply.obstacles.get(each) for a, reply in said.items()})
        return dict(said)

    def _find_misfit(self) -> PmfError | None:
        try:
            self._check_new()
        except PmfError as error:
            return error
        except Exception:
            return None
        return None

    def _explain_killed(self, task: Any, worker: Any, n_deaths: int) -> PmfError:
        name = "-".join(map(str, task)) if isinstance(task, tuple) else str(task)
        said = f"task {name} was on {n_deaths} workers that died one after the other, the last {worker.address}"
        limit = worker.memory_limit or 0
        if not limit:
            return ClusterError(f"{said}; see the logs of the workers")
        expected = ""
        if self._plan_worker is not None:
            plan = self._plan_worker(max(1, worker.nthreads))
            expected = f", of which {plan.stage} was expected to take {format_bytes(plan.needed)}"
        return MemoryPlanError(
            f"{said}: with a memory limit of {format_bytes(limit)}{expected}. Most likely they were killed for "
            "exceeding it (see their logs). Give workers more memory or fewer threads; if workers are often preempted, "
            "raise distributed.scheduler.allowed-failures of the scheduler"
        )
