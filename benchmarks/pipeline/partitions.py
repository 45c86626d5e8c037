"""What many partitions cost the scheduler: trivial work on 1,000, 10,000 and 100,000 blocks.

    python -m benchmarks.pipeline.partitions

For each number of blocks, grouped by the plan and (where bearable) one task per block: tasks in the graph, seconds from
submission to result, CPU seconds of this process, which holds client and scheduler, and growth of its memory.
Workers are
two processes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import psutil

from pmflib.cluster.clients import count_threads, open_client
from pmflib.cluster.maps import run_blocks
from pmflib.cluster.task_plans import plan_tasks
from pmflib.cluster.workers import start_workers
from pmflib.store.sample_blocks import BlockReference, group_blocks
from pmflib_tasks.config import ClusterConfig

CELLS = 1000


def main() -> None:
    """Run all sizes, and print a line each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument(
        "--ungrouped", type=int, default=10_000, help="largest number to run a task per block for"
    )
    options = parser.parse_args()
    with (
        start_workers(ClusterConfig(processes=True, workers=2)) as address,
        open_client(address) as client,
    ):
        run_blocks(client, count_blocks, [[block(0)]], add)
        for n_blocks in options.blocks:
            blocks = [block(number) for number in range(n_blocks)]
            measure("grouped", client, group_blocks(blocks), n_blocks)
            if n_blocks <= options.ungrouped:
                measure("a task each", client, [[one] for one in blocks], n_blocks)


def block(number: int) -> BlockReference:
    """Reference to a block that nobody reads."""
    return BlockReference(f"partition-{number:06}/samples", 0, 1, 0, CELLS, CELLS)


def count_blocks(group: Sequence[BlockReference]) -> int:
    """Trivial work: cells of a group."""
    return sum(one.n_observed for one in group)


def add(counts: Sequence[int]) -> int:
    """Sum of the counts of some groups."""
    return sum(counts)


def measure(
    name: str, client: object, groups: Sequence[Sequence[BlockReference]], n_blocks: int
) -> None:
    """Run one map and merge tree, check its result, and print what it took."""
    me = psutil.Process()
    memory, cpu, start = me.memory_info().rss, sum(me.cpu_times()[:2]), time.perf_counter()
    total = run_blocks(client, count_blocks, groups, add)
    seconds = time.perf_counter() - start
    assert total == n_blocks * CELLS
    n_tasks = plan_tasks([1] * len(groups), count_threads(client)).n_tasks
    print(
        f"{n_blocks:>7,} blocks, {name:>11}: {n_tasks:>6,} tasks, {seconds:7.2f} s, CPU "
        f"{sum(me.cpu_times()[:2]) - cpu:6.2f} s, memory {(me.memory_info().rss - memory) / 2**20:+6.1f} MiB",
        flush=True,
    )


if __name__ == "__main__":
    main()
