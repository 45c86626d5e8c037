"""Cost of a stage, and the closed formulas that make it of tasks and seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

from pmflib_tasks.operations.planning.sizes import ClusterSize
from pmflib_tasks.operations.planning.speeds import ADD_BYTES, LATENCY, Speeds
from pmflib_tasks.operations.planning.task_counts import MapTasks

MESSAGES = 2
"""Messages between the scheduler and a worker for each task: do it, and it is done."""


@dataclass(frozen=True)
class StageCost:
    """What a stage costs.

    Parameters
    ----------
    stage
        Its name.
    tasks
        Tasks of Dask.
    read_bytes, written_bytes
        Bytes that workers and client read from storage, sources included, and write to it.
    network_bytes
        Bytes between workers, scheduler and client.
    files
        Files, or objects, that are written.
    requests
        Operations on files, or objects: openings, reads and writes.
    worker_seconds
        CPU seconds of all workers.
    waiting_seconds
        Seconds in which workers wait for the storage or the network, in all.
    scheduler_seconds, client_seconds
        CPU seconds of these two.
    wall_seconds
        Time that it takes.
    worker_memory, client_memory
        Bytes that a worker, and the client, hold at most.
    efficiency
        Share of the time of all threads that is spent on the work itself, in [0, 1]; 0 where the client works alone.
    parts
        Seconds of wall time by what takes them; they may overlap, and their largest is the limit.
    least
        What it costs at least, where that depends on what a run finds: all else is then what it costs at most.
    """

    stage: str
    tasks: int = 0
    read_bytes: float = 0.0
    written_bytes: float = 0.0
    network_bytes: float = 0.0
    files: int = 0
    requests: float = 0.0
    worker_seconds: float = 0.0
    waiting_seconds: float = 0.0
    scheduler_seconds: float = 0.0
    client_seconds: float = 0.0
    wall_seconds: float = 0.0
    worker_memory: int = 0
    client_memory: int = 0
    efficiency: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    least: StageCost | None = None

    @property
    def least_seconds(self) -> float:
        """Time that it takes at least."""
        return self.wall_seconds if self.least is None else self.least.wall_seconds

    def start_later(
        self, seconds: float, loading: tuple[float, float] = (0.0, 0.0), n_workers: int = 1
    ) -> StageCost:
        """The same stage, which takes longer to start.

        Parameters
        ----------
        seconds
            Time in which nothing of it is done.
        loading
            Processor seconds in which the client, and then each worker, load what it needs.
        n_workers
            Workers, which load side by side.
        """
        later = seconds + sum(loading)
        if not later:
            return self
        whole = self.wall_seconds + later
        least = self.least
        return replace(
            self,
            wall_seconds=whole,
            client_seconds=self.client_seconds + loading[0],
            worker_seconds=self.worker_seconds + n_workers * loading[1],
            efficiency=self.efficiency * self.wall_seconds / whole,
            parts={**self.parts, "starting": later},
            least=None if least is None else least.start_later(seconds, loading, n_workers),
        )

    @property
    def processor_seconds(self) -> float:
        """Processor time of all."""
        return self.worker_seconds + self.scheduler_seconds + self.client_seconds

    @property
    def messages(self) -> int:
        """Messages between scheduler and workers."""
        return MESSAGES * self.tasks

    @property
    def limit(self) -> str:
        """What takes most of the wall time."""
        return max(self.parts, key=self.parts.__getitem__) if self.parts else "client"


def join_ends(costs: Sequence[StageCost]) -> StageCost:
    """Cost of a stage of which only the ends are known, at least one: the dearest, with the cheapest as its least.

    Memory is that of whichever takes most: a run plans for it before it knows.
    """
    cheapest, dearest = (find(costs, key=lambda each: each.wall_seconds) for find in (min, max))
    memory = {
        name: max(getattr(each, name) for each in costs)
        for name in ("worker_memory", "client_memory")
    }
    least = None if cheapest == dearest else replace(cheapest, **memory)
    return replace(dearest, **memory, least=least)


@dataclass(frozen=True)
class MapWork:
    """Maps of one kind, one after the other, as far as their cost depends on them.

    Parameters
    ----------
    tasks
        Tasks of one map.
    leaf_seconds
        CPU seconds of a task that works on items, on average.
    leaf_read
        Bytes that it reads from storage.
    leaf_requests
        Operations on files that it waits for.
    leaf_written
        Bytes that it writes to storage.
    sent_bytes
        Bytes that travel with each task through the scheduler.
    result_bytes
        Size of a result, which merging tasks fetch from the workers that have it.
    copied_bytes
        Size of a shared value that every worker fetches from another one.
    repeats
        Number of such maps.
    side_by_side
        Maps that are under way at a time.
    calls
        Times that the client submits tasks of a map to the scheduler.
    beside
        A map that is under way at the same time, before the next one; its repeats are these.
    """

    tasks: MapTasks
    leaf_seconds: float
    leaf_read: float = 0.0
    leaf_requests: float = 0.0
    leaf_written: float = 0.0
    sent_bytes: float = 0.0
    result_bytes: float = 0.0
    copied_bytes: float = 0.0
    repeats: int = 1
    side_by_side: int = 1
    calls: int = 1
    beside: MapWork | None = None


@dataclass(frozen=True)
class MapTimes:
    """What maps take, in all of their repeats.

    Parameters
    ----------
    wall, scheduler, worker, waiting, client
        Seconds: wall time, CPU of the scheduler, CPU of the workers, workers' waiting, CPU of the client.
    network_bytes
        Bytes between workers and scheduler.
    parts
        Seconds of wall time by what takes them.
    """

    wall: float
    scheduler: float
    worker: float
    waiting: float
    client: float
    network_bytes: float
    parts: dict[str, float]


def time_maps(work: MapWork, cluster: ClusterSize, speeds: Speeds) -> MapTimes:
    """Time maps by closed formulas.

    Parameters
    ----------
    work, cluster, speeds
        Sizes and speeds.

    Notes
    -----
    With n leaves of t seconds each on T threads, and s scheduler seconds a task, a map takes the longer of two: the
    scheduler's n s for all tasks, and the workers' part, which is s / 2 for each thread until the last one has its
    first task, then ceil(n / T) t times the balance of the leaves, prolonged by the slowest workers where there are few
    rounds: see `find_slowest`. Merges follow, a level at a time. Maps that are under way side by side share the
    threads; where others follow them, one by one, the first tasks and the merges of one map are beside the work of the
    others, but none is quicker than it were alone. What is beside a map takes the scheduler's time, and the threads'
    before them. `benchmarks.pipeline.simulated_maps` plays the same tasks one by one.
    """
    tasks, n_threads = work.tasks, cluster.n_threads
    side = max(1, min(work.side_by_side, work.repeats))
    per_task = speeds.task_seconds + work.sent_bytes * speeds.sent_byte_seconds
    busy = 1.0 / (1.0 - speeds.idle_share)
    of_map = speeds.map_seconds * (1 + tasks.depth)
    scheduler = busy * (work.calls * of_map + tasks.total * per_task)
    other = None if work.beside is None else time_maps(work.beside, cluster, speeds)
    beside, mean_beside = 0.0, 0.0
    if work.beside is not None and other is not None:
        n_beside = work.beside.tasks.leaves
        scheduler += other.scheduler / work.beside.repeats
        beside = time_leaf(work.beside, cluster, speeds) * math.ceil(n_beside / n_threads)
        mean_beside = beside * min(1.0, n_beside / n_threads)

    at_work = min(n_threads, side * tasks.leaves)
    leaf = time_leaf(work, cluster, speeds)
    computing = work.leaf_seconds + speeds.worker_task_seconds
    waiting = leaf - computing

    alone = wait_for_storage(work, cluster, speeds, 1)

    def find_working(n_maps: int, ramp: float) -> float:
        rounds = math.ceil(n_maps * tasks.leaves / n_threads)
        # what threads share, fewer of them in the last round have more of; no thread is quicker than alone
        held = max(n_maps * tasks.leaves * waiting / at_work, rounds * tasks.balance * alone)
        leaves = rounds * computing * tasks.balance
        # threads without a task of what is beside are busy with others' tasks
        more = beside if n_maps == 1 else n_maps * mean_beside
        slowest = find_slowest(at_work, speeds.spread / rounds, ramp / max(leaves + held, 1e-300))
        return leaves * slowest + held + more

    ramp = busy * per_task * at_work / 2
    working = find_working(side, ramp)
    in_merge = tasks.moved / max(tasks.merges, 1) * work.result_bytes
    merging = tasks.depth * (
        LATENCY
        + busy * speeds.map_seconds
        + speeds.worker_task_seconds
        + in_merge / speeds.network_bytes
        + in_merge / ADD_BYTES
    )
    groups = math.ceil(work.repeats / side)
    after = of_map + merging
    if side == 1:
        wall = groups * (max(scheduler, ramp + working) + after)
    else:
        first = busy * per_task * min(n_threads, tasks.leaves) / 2
        alone = max(scheduler, first + find_working(1, first)) + after
        wall = max(groups * side * scheduler, ramp + groups * working, groups * alone) + after

    worker_tasks = tasks.total * speeds.worker_task_seconds + tasks.leaves * work.leaf_seconds
    worker_tasks += tasks.moved * work.result_bytes / ADD_BYTES
    network = tasks.moved * work.result_bytes + tasks.total * work.sent_bytes + work.result_bytes
    network += work.copied_bytes * cluster.workers
    parts = {
        "work": work.repeats * tasks.leaves * computing / n_threads,
        "storage": work.repeats * tasks.leaves * waiting / n_threads,
        "idle": max(0.0, groups * working - work.repeats * tasks.leaves * leaf / n_threads),
        "scheduler": groups * max(side * scheduler, ramp),
        "merges": groups * merging,
    }
    times = MapTimes(
        wall=wall,
        scheduler=work.repeats * scheduler,
        worker=work.repeats * worker_tasks,
        waiting=work.repeats * tasks.leaves * waiting,
        client=work.repeats * tasks.total * speeds.client_task_seconds,
        network_bytes=work.repeats * network,
        parts=parts,
    )
    if other is None:
        return times
    done = {name: other.parts[name] for name in ("work", "storage")}
    return replace(
        times,
        worker=times.worker + other.worker,
        waiting=times.waiting + other.waiting,
        client=times.client + other.client,
        network_bytes=times.network_bytes + other.network_bytes,
        parts=add_parts(parts, done, {"idle": -min(parts["idle"], sum(done.values()))}),
    )


def find_slowest(n: int, spread: float, ramp: float) -> float:
    """Time until the last of n workers is done after the last one started, as a multiple of the mean of their work.

    Parameters
    ----------
    n
        Workers that begin one after the other, at equal distances.
    spread
        Standard deviation of their times, as a share of the mean.
    ramp
        Time from when the first begins until the last does, as a multiple of the mean.

    Notes
    -----
    The largest of as many normal values as there are workers that began late enough to be the last: all of them without
    a ramp, else about a share of spread / (spread + 3 ramp). The largest is about the quantile that Blom (1958) gives.
    """
    n_late = max(1.0, n * spread / max(spread + 3 * ramp, 1e-300))
    return 1.0 + spread * NormalDist().inv_cdf((n_late - 0.375) / (n_late + 0.25))


def time_leaf(work: MapWork, cluster: ClusterSize, speeds: Speeds) -> float:
    """Seconds of a task that works on items, on a thread of mean speed: computing, and waiting for storage and network.

    Storage is shared by the threads that are at work: of a worker that of the worker, what does not grow with the
    workers by all.
    """
    side = max(1, min(work.side_by_side, work.repeats))
    at_work = max(1, min(cluster.n_threads, side * work.tasks.leaves))
    waiting = wait_for_storage(work, cluster, speeds, at_work)
    return work.leaf_seconds + speeds.worker_task_seconds + waiting


def wait_for_storage(work: MapWork, cluster: ClusterSize, speeds: Speeds, at_work: int) -> float:
    """Seconds in which a task waits for storage and network, while so many threads of all workers are at work."""
    sharing = math.ceil(at_work / cluster.workers)
    rate = min(speeds.storage_bytes / sharing, speeds.storage_total / at_work)
    waiting = (work.leaf_read + work.leaf_written) / rate
    waiting += work.leaf_requests * speeds.request_seconds
    # a worker fetches a shared value once, for all of its threads
    copies = min(cluster.workers, work.tasks.leaves) / work.tasks.leaves
    return waiting + copies * work.copied_bytes / speeds.network_bytes


def add_parts(*many: dict[str, float]) -> dict[str, float]:
    """Sums of seconds, by what takes them."""
    total: dict[str, float] = {}
    for parts in many:
        for name, seconds in parts.items():
            total[name] = total.get(name, 0.0) + seconds
    return total
