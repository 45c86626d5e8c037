"""A simulation of maps on a cluster, task by task: what the closed formulas are checked against.

The scheduler is a serial server: it hands out tasks and notes what is done, one message at a time. Workers have speeds
of their own, which stay, and now and then one is held up. The same seed gives the same times.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from pmflib_tasks.operations.planning.sizes import ClusterSize
from pmflib_tasks.operations.planning.speeds import ADD_BYTES, LATENCY, Speeds
from pmflib_tasks.operations.planning.stage_costs import MapWork, time_leaf


@dataclass(frozen=True)
class Hitches:
    """How workers differ.

    Parameters
    ----------
    spread
        Standard deviation of their speeds, as a share of the mean.
    straggling
        Share of the tasks that are held up.
    factor
        Times that these take as long.
    """

    spread: float = 0.05
    straggling: float = 0.0
    factor: float = 2.0


@dataclass(frozen=True)
class SimulatedMap:
    """What a simulated map took.

    Parameters
    ----------
    wall
        Seconds until its result was there.
    scheduler
        Seconds in which the scheduler was busy.
    working
        Seconds of all leaves together, as they would be on workers of mean speed.
    efficiency
        Share of the time of all threads that is this work.
    """

    wall: float
    scheduler: float
    working: float
    efficiency: float


def simulate_map(
    work: MapWork,
    cluster: ClusterSize,
    speeds: Speeds,
    hitches: Hitches = Hitches(),
    seed: int = 0,
    rounds: int = 1,
) -> SimulatedMap:
    """Play maps: as many as are under way side by side, each followed by the next one of its run.

    Parameters
    ----------
    work, cluster, speeds
        As for `time_maps`.
    hitches
        How workers differ.
    seed
        Seed of the speeds, and of what is held up.
    rounds
        Maps of each run, one after the other; other repeats are not played.
    """
    rng = np.random.default_rng(seed)
    tasks, n_threads = work.tasks, cluster.n_threads
    n_maps = max(1, min(work.side_by_side, work.repeats))
    slowness = np.maximum(rng.normal(1.0, hitches.spread, n_threads), 0.2)
    leaf = time_leaf(work, cluster, speeds)
    busy = 1.0 / (1.0 - speeds.idle_share)
    step = busy * (speeds.task_seconds + work.sent_bytes * speeds.sent_byte_seconds) / 2
    in_merge = tasks.moved / max(tasks.merges, 1) * work.result_bytes
    merging = LATENCY + speeds.worker_task_seconds
    merging += in_merge / speeds.network_bytes + in_merge / ADD_BYTES
    # of the merges of a level all but the last wait for nothing that the last does not wait for
    levels = _split_merges(tasks.merges, tasks.depth, tasks.results)
    handing = busy * speeds.map_seconds * (1 + tasks.depth) * work.calls + step * 2 * tasks.shared
    beside: list[float] = []
    if work.beside is not None:
        other = work.beside.tasks
        beside = [time_leaf(work.beside, cluster, speeds)] * other.leaves
        handing += busy * speeds.map_seconds * (1 + other.depth) + step * 2 * other.shared
        # among the first merges, for whose leaves they wait as well
        levels = [(levels or [0])[0] + other.merges, *levels[1:]]

    costs = np.full(tasks.leaves, 1.0)
    if tasks.balance > 1 and tasks.leaves > 1:
        # some leaves have more work, the others less
        n_heavy = max(1, tasks.leaves // 4)
        costs[:n_heavy] = tasks.balance
        costs[n_heavy:] = (tasks.leaves - n_heavy * tasks.balance) / (tasks.leaves - n_heavy)
        costs = np.maximum(rng.permutation(costs), 0.0)
    held_up = rng.random((n_maps, tasks.leaves)) < hitches.straggling

    clock, scheduler = 0.0, 0.0
    free = list(range(n_threads))[::-1]
    waiting: list[tuple[int, int, float]] = []
    done: list[tuple[float, int, int, int]] = []
    n_leaves = tasks.leaves + len(beside)
    left = [[n_leaves, *levels] for _ in range(n_maps)]
    ends, to_come = [0.0] * n_maps, [rounds - 1] * n_maps

    def hand_out() -> None:
        nonlocal clock, scheduler
        while free and waiting:
            number, level, seconds = waiting.pop()
            thread = free.pop()
            clock += step
            scheduler += step
            heapq.heappush(done, (clock + seconds * slowness[thread], thread, number, level))

    def list_leaves(number: int) -> list[tuple[int, int, float]]:
        seconds = leaf * costs * np.where(held_up[number], hitches.factor, 1.0)
        # what is beside a map comes before it
        return [(number, 0, float(each)) for each in [*seconds[::-1], *beside]]

    for number in range(n_maps)[::-1]:
        waiting += list_leaves(number)
    clock = scheduler = handing * n_maps
    hand_out()
    while done:
        at, thread, number, level = heapq.heappop(done)
        clock = max(clock, at) + step
        scheduler += step
        free.append(thread)
        counts = left[number]
        counts[level] -= 1
        if counts[level] == 0:
            if level + 1 < len(counts):
                waiting += [(number, level + 1, merging)] * counts[level + 1]
            elif to_come[number]:
                to_come[number] -= 1
                left[number] = [n_leaves, *levels]
                clock, scheduler = clock + handing, scheduler + handing
                # first come, first served
                waiting[:0] = list_leaves(number)
            else:
                ends[number] = clock
        hand_out()
    wall = max(ends)
    alone = tasks.leaves * (leaf - speeds.worker_task_seconds)
    alone += sum(each - speeds.worker_task_seconds for each in beside)
    alone *= rounds * n_maps
    return SimulatedMap(wall, scheduler, alone, alone / (wall * n_threads))


def _split_merges(n_merges: int, depth: int, n_results: int) -> list[int]:
    """Merging tasks of each level, falling to one for each result."""
    if not depth:
        return []
    levels = [max(1, n_merges - (depth - 1) * n_results), *[n_results] * (depth - 1)]
    if depth > 2:
        ratio = (n_merges / n_results) ** (1 / depth)
        levels = [max(n_results, round(n_merges / ratio**index)) for index in range(depth)]
        levels[-1] = n_results
    return levels
