"""What a task costs the Dask scheduler, its workers and the client, as workers grow in number.

    python -m benchmarks.pipeline.scheduler_costs                # 4 to 200 workers, about three minutes
    python -m benchmarks.pipeline.scheduler_costs --workers 400  # minutes more: their heartbeats share two cores

A real scheduler runs in a process of its own, and all workers, of one thread each, in another: light workers without
nannies, which listen on loopback. The client is a third process, so that the CPU seconds of each are its own. Tasks do
nothing. They are maps as the stages make them: so many tasks per worker, each with an argument of some bytes that
travels with it, and a result of some bytes that a tree of merges fetches from the workers that have it. CPU seconds of
the scheduler are what a larger machine would need as well, for it works in one thread; those of the workers are divided
by their number on a cluster. "Idle" is what the heartbeats of a worker cost the scheduler while nothing is done.

The last lines fit the scheduler's seconds: so many for each call of ``client.map``, for each task, and for each byte
that travels with a task. Whether a task costs more with more workers is seen from the lines above; beyond the workers
measured it is an extrapolation.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Client, Worker, wait

FAN_IN = 8
QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.terminate": False,
}
"""Options of the workers of one process: what each of a thousand would do about a memory that they share."""


async def run_workers(address: str, n_workers: int, folder: str) -> None:
    """Run light workers in this process until the scheduler is gone."""
    with dask.config.set(QUIET):
        workers: list[Worker] = []
        for number in range(n_workers):
            workers.append(
                await Worker(
                    address,
                    nthreads=1,
                    name=number,
                    host="127.0.0.1",
                    dashboard=False,
                    local_directory=folder,
                    memory_limit=0,
                )
            )
        await asyncio.gather(*(worker.finished() for worker in workers))


@contextmanager
def start_cluster(n_workers: int) -> Iterator[tuple[Client, int]]:
    """Start a scheduler, and workers in one process; yields a client and the number of that process."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "scheduler.json"
        scheduler = subprocess.Popen(
            [
                sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0",
                "--no-dashboard", "--scheduler-file", str(file),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        processes = [scheduler]
        try:
            while not file.exists() or not file.stat().st_size:
                time.sleep(0.05)
            client = Client(scheduler_file=str(file), timeout=60)
            workers = subprocess.Popen(
                [
                    sys.executable, "-m", "benchmarks.pipeline.scheduler_costs", "--serve", client.scheduler.address,
                    "--workers", str(n_workers), "--folder", name,
                ],
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
            processes.append(workers)
            client.wait_for_workers(n_workers, timeout=1200)
            yield client, workers.pid
            client.close()
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait()


def do_nothing(number: int, argument: bytes, n_bytes: int) -> np.ndarray:
    """Do nothing, and return some bytes."""
    return np.zeros(n_bytes, np.uint8)


def merge(parts: list[np.ndarray]) -> np.ndarray:
    """Give one of the parts."""
    return parts[0]


def read_clocks(client: Client, workers: int) -> tuple[float, float, float, float]:
    """Wall clock, and CPU seconds of the scheduler, of the workers and of this process."""
    import psutil

    times = psutil.Process(workers).cpu_times()
    return (
        time.perf_counter(),
        client.run_on_scheduler(time.process_time),
        times.user + times.system,
        time.process_time(),
    )


def run_map(
    client: Client, n_tasks: int, argument: int, result: int, *, tree: bool
) -> tuple[int, int]:
    """Make one map and its tree of merges; the numbers of tasks and of calls."""
    sent = np.random.default_rng(0).bytes(argument)
    level = client.map(do_nothing, range(n_tasks), [sent] * n_tasks, [result] * n_tasks, pure=False)
    n_all, n_calls = len(level), 1
    while tree and len(level) > 1:
        level = client.map(
            merge, [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)], pure=False
        )
        n_all, n_calls = n_all + len(level), n_calls + 1
    wait(level)
    return n_all, n_calls


def measure_idle(client: Client, workers: int, seconds: float) -> float:
    """CPU seconds of the scheduler in a second in which nothing is done."""
    before = read_clocks(client, workers)
    time.sleep(seconds)
    after = read_clocks(client, workers)
    return (after[1] - before[1]) / (after[0] - before[0])


def main() -> None:
    """Measure all numbers of workers in turn, print a line each, and fit the scheduler's seconds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 50, 200])
    parser.add_argument("--tasks", type=int, default=2000, help="tasks of a map, about")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(run_workers(options.serve, options.workers[0], options.folder))
        return
    print(
        "workers  tasks  per worker  sent kB  result kB | us a task: scheduler  workers  client |  wall s | "
        "idle, ms a second"
    )
    found: list[tuple[float, ...]] = []
    idles: list[tuple[float, float]] = []
    for n_workers in options.workers:
        with start_cluster(n_workers) as (client, workers):
            run_map(client, max(n_workers, 200), 100, 100, tree=True)
            idle = measure_idle(client, workers, 5.0)
            idles.append((n_workers, idle))
            for per_worker, argument, result, tree in (
                (max(1, options.tasks // n_workers), 100, 100, False),
                (1, 100, 24_000, True),
                (1, 24_000, 24_000, True),
                (1, 64_000, 24_000, True),
            ):
                n_maps = 1 if per_worker > 1 else max(1, options.tasks // n_workers // 4)
                rounds = [
                    measure_maps(
                        client,
                        workers,
                        n_maps,
                        per_worker * n_workers,
                        argument,
                        result,
                        tree,
                        idle,
                    )
                    for _ in range(options.rounds)
                ]
                tasks, calls, *costs = (
                    statistics.median(column) for column in zip(*rounds, strict=True)
                )
                sent = n_maps * per_worker * n_workers * argument
                found.append((calls, tasks, sent, costs[0] * tasks))
                print(
                    f"{n_workers:7} {tasks:6.0f} {per_worker:11} {argument / 1e3:8.1f} {result / 1e3:10.1f} |"
                    f" {costs[0] * 1e6:20.0f} {costs[1] * 1e6:8.0f} {costs[2] * 1e6:7.0f} | {costs[3]:7.2f} |"
                    f" {idle * 1e3:.1f}",
                    flush=True,
                )
    table = np.array(found)
    # each line counts as one: seconds are divided by the tasks
    scaled = table / table[:, 1:2]
    found_seconds = np.linalg.lstsq(scaled[:, :3], scaled[:, 3], rcond=None)[0]
    print(
        "scheduler seconds: {:.2e} a call of map + {:.2e} a task + {:.2e} a byte sent with one".format(
            *found_seconds
        )
    )
    if len(idles) > 1:
        n_of_each, seconds = np.array(idles, np.float64).T
        slope, least = np.polyfit(n_of_each, seconds, 1)
        print(f"of a second in which nothing is done: {least:.2e} + {slope:.2e} x workers")


def measure_maps(
    client: Client,
    workers: int,
    n_maps: int,
    n_tasks: int,
    argument: int,
    result: int,
    tree: bool,
    idle: float,
) -> tuple[Any, ...]:
    """Tasks and calls of some maps, and per task the CPU seconds of scheduler, workers and client; wall seconds."""
    before = read_clocks(client, workers)
    made = [run_map(client, n_tasks, argument, result, tree=tree) for _ in range(n_maps)]
    n_all, n_calls = map(sum, zip(*made, strict=True))
    wall, scheduler, theirs, mine = (
        late - early for early, late in zip(before, read_clocks(client, workers), strict=True)
    )
    return n_all, n_calls, (scheduler - idle * wall) / n_all, theirs / n_all, mine / n_all, wall


if __name__ == "__main__":
    main()
