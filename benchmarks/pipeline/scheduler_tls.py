"""What a task costs the Dask scheduler with and without TLS, and what it costs while nothing is done.

    python -m benchmarks.pipeline.scheduler_tls                 # a minute
    python -m benchmarks.pipeline.scheduler_tls --seconds 1 --rounds 1

Two worker processes, the scheduler in this one, as a run on one machine has them. Tasks do nothing. Seconds are
processor time of the thread of the scheduler's event loop, which serves the client's connection as well; "idle" is the
share of that thread while no task is there, for heartbeats, and is taken off the seconds of a task.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import dask
from distributed import Client, LocalCluster
from distributed.security import Security

SIZES = (16, 200, 1000)
"""Tasks of a map."""


def give_back(value: int) -> int:
    """Do nothing."""
    return value


def read_loop(dask_scheduler: Any) -> float:
    """Processor time of the thread of the event loop, seconds."""
    return time.thread_time()


def measure(client: Client, seconds: float, rounds: int) -> None:
    """Print what a task costs, for maps of several sizes."""
    client.gather(client.map(give_back, range(100), pure=False))
    before, started = client.run_on_scheduler(read_loop), time.monotonic()
    time.sleep(seconds)
    idle = (client.run_on_scheduler(read_loop) - before) / (time.monotonic() - started)
    print(f"  idle: {idle:.3f} of a core")
    for size in SIZES:
        before, started = client.run_on_scheduler(read_loop), time.monotonic()
        n_maps = max(1, rounds * SIZES[-1] // size)
        for _ in range(n_maps):
            client.gather(client.map(give_back, range(size), pure=False))
        took = time.monotonic() - started
        used = client.run_on_scheduler(read_loop) - before
        each = (used - idle * took) / (n_maps * size)
        print(f"  {size:,} tasks a map: {1e3 * each:.2f} ms a task, idle not counted")


def main() -> None:
    """Measure both kinds of connections."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    for name, security in (("plain", None), ("TLS", Security.temporary())):
        with (
            dask.config.set({"distributed.worker.profile.enabled": False}),
            LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address=None,
                security=security,
            ) as cluster,
            Client(cluster) as client,
        ):
            print(name)
            measure(client, options.seconds, options.rounds)


if __name__ == "__main__":
    main()
