"""Tasks that a map over many items becomes: runs of items, one for each thread, and merges. Nothing runs here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.running.merge_tree import FAN_IN, Node, count_nodes, find_top, merge_nodes

MERGED = 80
"""Results that a task merges, about and at most: with more, tasks in between merge some of them."""
MERGED_BYTES = 256 << 20
"""Size of the results that a task merges, bytes, about and at most; but ``FAN_IN`` of them may be larger."""
COPY_SHARE = 32
"""Tasks that fetch a shared value from one worker: more of them fetch it from as many workers as it takes."""
RETRIES = 2
"""Number of times that a failed task is run again."""


@dataclass(frozen=True)
class TaskPlan:
    """Tasks of a map over items whose results are merged.

    Parameters
    ----------
    n_items
        Number of items, at least 1: the leaves of the tree.
    bounds
        Ends of the runs, (n_runs + 1,): a task works on the items from one to the next.
    costs
        float64 of shape (n_items,), in any unit.
    most_merged
        Results that a task merges, about and at most.
    fan_in
        Neighbours that a node of the tree merges.
    """

    n_items: int
    bounds: tuple[int, ...]
    costs: FloatArray
    most_merged: int = MERGED
    fan_in: int = FAN_IN

    @property
    def runs(self) -> list[tuple[int, int]]:
        """First item of each run, and the one after its last."""
        return list(pairwise(self.bounds))

    @cached_property
    def merge_levels(self) -> tuple[int, ...]:
        """Levels of the tree at which tasks merge, upwards: one task for each node of them. None for a single run."""
        if self.n_runs == 1:
            return ()
        levels: list[int] = []
        top = find_top(self.n_items, self.fan_in)
        n_values = sum(self._count_values(*run, top) for run in self.runs)
        while not levels or levels[-1] < top:
            level = levels[-1] + 1 if levels else 1
            while level < top and n_values <= self.most_merged * self._count_nodes(level + 1):
                level += 1
            levels.append(level)
            n_values = self._count_nodes(level)
        return tuple(levels)

    @property
    def n_runs(self) -> int:
        """Number of tasks that work on items."""
        return len(self.bounds) - 1

    @property
    def n_merges(self) -> int:
        """Number of tasks that merge."""
        return sum(map(self._count_nodes, self.merge_levels))

    @property
    def n_copies(self) -> int:
        """Number of tasks that hold a shared value that is too large to be sent along with each task."""
        return count_copies(self.n_runs)

    @property
    def n_tasks(self) -> int:
        """Number of tasks in all, with those of one shared value."""
        return self.n_runs + self.n_merges + self.n_copies

    @property
    def balance(self) -> float:
        """Cost of the most expensive run, as a multiple of the mean."""
        totals = np.add.reduceat(self.costs, self.bounds[:-1])
        return float(totals.max() / max(totals.mean(), 1e-300))

    @property
    def run_top(self) -> int:
        """Level up to which runs merge what they have: that of the first merging tasks."""
        return self.merge_levels[0] if self.merge_levels else find_top(self.n_items, self.fan_in)

    @cached_property
    def _sent(self) -> list[int]:
        """Values that each merging task is sent."""
        parts = [(*run, self._count_values(*run, self.run_top)) for run in self.runs]
        sent: list[int] = []
        for level in self.merge_levels:
            size = self.fan_in**level
            starts = range(0, self.n_items, size)
            stops = [min(start + size, self.n_items) for start in starts]
            ends = zip(starts, stops, strict=True)
            sent += [sum(n for a, b, n in parts if a < stop and b > start) for start, stop in ends]
            parts = [(start, stop, 1) for start, stop in zip(starts, stops, strict=True)]
        return sent

    def _count_nodes(self, level: int) -> int:
        return count_nodes(self.n_items, level, self.fan_in)

    def _count_values(self, start: int, stop: int, top: int) -> int:
        """Number of values that a run results in."""
        leaves = (Node(0, place, None) for place in range(start, stop))
        merged = merge_nodes(leaves, self.n_items, lambda _: None, top=top, fan_in=self.fan_in)
        return len(merged)

    @property
    def n_values_sent(self) -> int:
        """Values that merging tasks are sent: times the size of a result, the bytes that travel between workers."""
        return sum(self._sent)

    @property
    def n_held(self) -> int:
        """Most values that a task holds at once, its own result among them."""
        longest = max(stop - start for start, stop in self.runs)
        levels = find_top(longest, self.fan_in) + 1
        # on either side of the largest node in a run, and what is being merged
        while_working = min(longest, 2 * (self.fan_in - 1) * levels) + 2
        return max([while_working, *(n + 1 for n in self._sent)])


def plan_tasks(
    costs: Sequence[int] | IntArray | FloatArray,
    n_threads: int,
    result_bytes: int = 0,
    fan_in: int = FAN_IN,
) -> TaskPlan:
    """Plan the tasks of a map over items: one for each item, or for each thread where there are more items.

    Parameters
    ----------
    costs
        Cost of each item, at least one of them, in any unit; none negative.
    n_threads
        Threads that work: they decide who works on what, never the bits of the result.
    result_bytes
        Size of the result of an item, and of a merge: large ones are merged few at a time.
    fan_in
        Neighbours that a node of the tree merges, at least 2.

    Returns
    -------
    The plan: runs are contiguous, and of costs as equal as whole items allow.
    """
    weights = np.asarray(costs, np.float64)
    n_items = len(weights)
    n_runs = min(n_items, max(1, n_threads))
    if n_runs == n_items:
        bounds = np.arange(n_items + 1)
    else:
        # an item without cost is still one
        ends = np.cumsum(weights + max(weights.mean(), 1.0) * 1e-6)
        wanted = ends[-1] * np.arange(1, n_runs) / n_runs
        before = np.searchsorted(ends, wanted)
        below = np.where(before > 0, ends[before - 1], 0.0)
        cuts = before + (ends[before] - wanted < wanted - below)
        # every run has an item
        cuts = np.maximum.accumulate(np.maximum(cuts - np.arange(1, n_runs), 0)) + np.arange(
            1, n_runs
        )
        cuts = np.minimum(cuts, n_items - n_runs + np.arange(1, n_runs))
        bounds = np.array([0, *cuts, n_items])
    most_merged = max(fan_in, min(MERGED, MERGED_BYTES // max(1, result_bytes)))
    return TaskPlan(n_items, tuple(int(bound) for bound in bounds), weights, most_merged, fan_in)


def count_copies(n_tasks: int) -> int:
    """Number of workers that hold a shared value for so many tasks, tasks of their own: 1 of few."""
    return 1 if n_tasks <= 2 * COPY_SHARE else 1 + -(-n_tasks // COPY_SHARE)
