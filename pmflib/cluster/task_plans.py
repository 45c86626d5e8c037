"""Planning the tasks of a map: runs of items, and a merge tree whose shape depends only on their number; task names.

Level 0 of the merge tree has a node for every leaf; a node of a higher level merges ``fan_in`` neighbours of the level
below, the last one the remainder. A task that processes a run of consecutive leaves merges all nodes of the tree that
lie within the run, as in a segment tree, and returns the largest of them; merging tasks continue from the nodes of
neighbouring runs. Floating-point sums therefore have the same bits for any division into runs.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray

R = TypeVar("R")

FAN_IN = 8
"""Number of neighbours that a node merges."""


class Node(NamedTuple, Generic[R]):
    """A node of the tree and its value.

    Parameters
    ----------
    level
        0 for a leaf.
    position
        Number of nodes of the same level before it.
    value
        Merged result of its leaves.
    """

    level: int
    position: int
    value: R


def find_top(n_leaves: int, fan_in: int = FAN_IN) -> int:
    """Return the level of the root: 0 for a single leaf."""
    level = 0
    while count_nodes(n_leaves, level, fan_in) > 1:
        level += 1
    return level


def count_nodes(n_leaves: int, level: int, fan_in: int = FAN_IN) -> int:
    """Return the number of nodes on a level."""
    return int(-(-n_leaves // fan_in**level))


def merge_nodes(
    nodes: Iterable[Node[R]],
    n_leaves: int,
    merge: Callable[[Sequence[R]], R],
    *,
    top: int | None = None,
    fan_in: int = FAN_IN,
) -> list[Node[R]]:
    """Merge nodes as far as possible.

    Parameters
    ----------
    nodes
        Consecutive nodes of any levels; iterated once.
    n_leaves
        Number of leaves of the whole tree.
    merge
        Merges the values of neighbours, in order.
    top
        Level up to which nodes are merged; by default that of the root.
    fan_in
        Number of neighbours that a node merges, at least 2.

    Returns
    -------
    The largest nodes of the tree that cover the same leaves, in order. During merging, at most these values and
    ``fan_in - 1`` per level are in memory.
    """
    limit = find_top(n_leaves, fan_in) if top is None else top
    waiting: list[Node[R]] = []
    for node in nodes:
        waiting.append(node)
        while (last := waiting[-1]).level < limit:
            level, position = last.level, last.position
            is_last = position + 1 == count_nodes(n_leaves, level, fan_in)
            if not (is_last or (position + 1) % fan_in == 0):
                break
            first = position - position % fan_in
            children = waiting[first - position - 1 :]
            if len(children) != position - first + 1 or children[0][:2] != (level, first):
                # the first neighbours are in other runs
                break
            del waiting[first - position - 1 :]
            merged = merge([child.value for child in children])
            waiting.append(Node(level + 1, first // fan_in, merged))
    return waiting


MERGED = 80
"""Approximate maximum number of results merged by a task; with more, intermediate tasks merge some of them."""
MERGED_BYTES = 256 << 20
"""Approximate maximum size of the results merged by a task, bytes; ``FAN_IN`` results may exceed it."""
GATHERED = 8
"""Maximum number of runs whose small results the client merges itself: it receives them one message after the last,
while a merging task would wait for a worker and then for another message.
"""
GATHERED_BYTES = 1 << 20
"""Maximum total size of the results that the client merges itself, bytes."""
RETRIES = 2
"""Number of times that a failed task is repeated."""


@dataclass(frozen=True)
class TaskPlan:
    """Tasks of a map over items whose results are merged.

    Parameters
    ----------
    n_items
        Number of items, at least 1: the leaves of the tree.
    bounds
        Boundaries of the runs, (n_runs + 1,): each task processes the items between two of them.
    costs
        float64 of shape (n_items,), in any unit.
    most_merged
        Approximate maximum number of results merged by a task.
    fan_in
        Number of neighbours that a node of the tree merges.
    is_gathered
        Whether the client merges the results of the runs, if they are few and small.
    """

    n_items: int
    bounds: tuple[int, ...]
    costs: FloatArray
    most_merged: int = MERGED
    fan_in: int = FAN_IN
    is_gathered: bool = False

    @property
    def runs(self) -> list[tuple[int, int]]:
        """Return the first item of each run, and the one after its last."""
        return list(pairwise(self.bounds))

    @cached_property
    def merge_levels(self) -> tuple[int, ...]:
        """Return the levels of the tree at which tasks merge, in increasing order, with one task per node.

        Empty for a single run, and if the client merges.
        """
        if self.n_runs == 1 or self.is_gathered:
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
        """Return the number of tasks that process items."""
        return len(self.bounds) - 1

    @property
    def n_merges(self) -> int:
        """Return the number of merging tasks."""
        return sum(map(self._count_nodes, self.merge_levels))

    @property
    def n_tasks(self) -> int:
        """Return the total number of tasks, including those of one shared value."""
        return self.n_runs + self.n_merges + 1

    @property
    def run_top(self) -> int:
        """Return the level up to which runs merge: that of the first merging tasks."""
        return self.merge_levels[0] if self.merge_levels else find_top(self.n_items, self.fan_in)

    @cached_property
    def _sent(self) -> list[int]:
        """Return the number of values sent to each merging task."""
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
        """Return the number of values returned by a run."""
        leaves = (Node(0, position, None) for position in range(start, stop))
        merged = merge_nodes(leaves, self.n_items, lambda _: None, top=top, fan_in=self.fan_in)
        return len(merged)

    @property
    def n_values_sent(self) -> int:
        """Return the number of values sent to merging tasks; times the result size, the bytes sent between workers."""
        return sum(self._sent)

    @property
    def n_waiting(self) -> int:
        """Return the largest number of values that a task holds at once, including its own result."""
        longest = max(stop - start for start, stop in self.runs)
        levels = find_top(longest, self.fan_in) + 1
        # on either side of the largest node in a run, plus those being merged
        while_working = min(longest, 2 * (self.fan_in - 1) * levels) + 2
        return max([while_working, *(n + 1 for n in self._sent)])


def plan_tasks(
    costs: Sequence[int] | IntArray | FloatArray,
    n_threads: int,
    result_bytes: int = 0,
    fan_in: int = FAN_IN,
) -> TaskPlan:
    """Plan the tasks of a map over items: one per item, or one per thread if there are more items.

    Parameters
    ----------
    costs
        Cost of each item, at least one, in any unit; non-negative.
    n_threads
        Number of working threads; it affects the division of work, not the bits of the result.
    result_bytes
        Size of the result of an item and of a merge in bytes; large results are merged in small numbers.
    fan_in
        Number of neighbours that a node of the tree merges, at least 2.

    Returns
    -------
    The plan: runs are contiguous, with costs as equal as possible. The client merges the results of at most `GATHERED`
    runs with at most `GATHERED_BYTES` in total.
    """
    weights = np.asarray(costs, np.float64)
    n_items = len(weights)
    n_runs = min(n_items, max(1, n_threads))
    if n_runs == n_items:
        bounds = np.arange(n_items + 1)
    else:
        # an item with cost 0 still counts
        ends = np.cumsum(weights + max(weights.mean(), 1.0) * 1e-6)
        targets = ends[-1] * np.arange(1, n_runs) / n_runs
        before = np.searchsorted(ends, targets)
        below = np.where(before > 0, ends[before - 1], 0.0)
        splits = before + (ends[before] - targets < targets - below)
        # every run has an item
        splits = np.maximum.accumulate(np.maximum(splits - np.arange(1, n_runs), 0)) + np.arange(
            1, n_runs
        )
        splits = np.minimum(splits, n_items - n_runs + np.arange(1, n_runs))
        bounds = np.array([0, *splits, n_items])
    most_merged = max(fan_in, min(MERGED, MERGED_BYTES // max(1, result_bytes)))
    is_gathered = n_runs <= GATHERED and n_runs * result_bytes <= GATHERED_BYTES
    positions = tuple(int(bound) for bound in bounds)
    return TaskPlan(n_items, positions, weights, most_merged, fan_in, is_gathered)


TaskKey: TypeAlias = tuple[str, str]
"""Key of a Dask task: the group, whose words before the first number label a bar on the dashboard, and the task."""

_stage: ContextVar[str] = ContextVar("stage", default="")
_submitted: Counter[str] = Counter()


@contextmanager
def name_tasks(stage: str) -> Iterator[None]:
    """Name tasks submitted within the context after a stage."""
    before = _stage.set(stage.replace(" ", "-"))
    try:
        yield
    finally:
        _stage.reset(before)


def name_step(function: Callable[..., Any], name: str = "") -> str:
    """Make a unique name for tasks that are submitted together.

    Parameters
    ----------
    function
        Function of the tasks; its name is used if no other is given.
    name
        Description of the step, such as ``pass`` or ``fold-03``.

    Returns
    -------
    Stage, description, number of steps this process has submitted by this name, and eight random digits:
    ``refine-pass-0007-1c9f02ab``.
    """
    words = name or getattr(function, "__name__", type(function).__name__).strip("_<>")
    step = "-".join(filter(None, (_stage.get(), words.replace("_", "-"))))
    _submitted[step] += 1
    return f"{step}-{_submitted[step]:04}-{uuid.uuid4().hex[:8]}"


def name_range(what: str, start: int, stop: int) -> str:
    """Name a task by the first and last item of its range: ``groups-0120-0239``."""
    return f"{what}-{start:04}" if stop == start + 1 else f"{what}-{start:04}-{stop - 1:04}"
