"""Maps of a function over items on workers, merged in a tree of fixed shape; progress that workers report."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from pmflib.running.clients import Client, count_threads
from pmflib.running.item_maps import LoadedItems, share_value
from pmflib.running.task_plans import (
    FAN_IN,
    RETRIES,
    Node,
    TaskKey,
    TaskPlan,
    find_top,
    merge_nodes,
    name_range,
    name_step,
    plan_tasks,
)

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class PendingResult(Generic[R]):
    """A result that workers are computing.

    Parameters
    ----------
    parts
        Futures of the highest nodes of the tree that workers merge, or these nodes where there is no client.
    leaves
        Futures of the runs.
    join
        Merges the parts into the root of the tree.
    """

    parts: Sequence[Any]
    leaves: Sequence[Any]
    join: Callable[[Sequence[list[Node[R]]]], list[Node[R]]]

    def wait(self) -> R:
        """Wait for the result."""
        # one request for all of them, which is answered when the last one is there
        (root,) = self.join(self.leaves[0].client.gather(self.parts) if self.leaves else self.parts)
        return root.value


def start_blocks(
    client: Client,
    function: Callable[..., R],
    items: Sequence[Any] | LoadedItems,
    merge: Callable[[Sequence[R]], R],
    *shared: Any,
    costs: Sequence[int] | None = None,
    result_bytes: int = 0,
    name: str = "",
    fan_in: int = FAN_IN,
) -> PendingResult[R]:
    """Map a function over items and merge the results in a tree whose shape depends on their number alone.

    A task works on a run of consecutive items, one task for each thread where there are more items than threads, and
    merges what it has as far as the tree allows, before anything is sent: see `pmflib.running.task_plans`.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread: the same tree, the same bits.
    function
        Called as ``function(item, *shared)``; must change neither.
    items
        At least one: values that can be pickled, or what `pmflib.running.item_maps.keep_loaded` returned.
    merge
        Joins a list of results in order; must not change them.
    shared
        Sent once for all items; may be large.
    costs
        Cost of each item, by which runs are balanced; None takes items as equal. Loaded items have runs already.
    result_bytes
        Size of a result, where it is large: few of them are merged at a time.
    name
        What the tasks are called after the stage; by default as the function.
    fan_in
        Results merged at a time, at least 2.

    Returns
    -------
    The pending result.
    """
    if client is None:
        values = (
            [item for run in items.runs for item in run]
            if isinstance(items, LoadedItems)
            else items
        )
        nodes = _work_on_run(values, 0, len(values), None, fan_in, function, merge, *shared)
        return PendingResult([nodes], (), _join_parts(len(values), fan_in, merge))
    if isinstance(items, LoadedItems):
        parts = items.runs
        plan = plan_tasks(items.plan.costs, len(parts), result_bytes, fan_in)
        plan = replace(plan, bounds=items.plan.bounds)
    else:
        weights = [1] * len(items) if costs is None else costs
        plan = plan_tasks(weights, count_threads(client), result_bytes, fan_in)
        parts = [list(items[start:stop]) for start, stop in plan.runs]
    tree = _Tree(name_step(function, name), plan, parts)
    return _start_trees(client, function, [tree], merge, *shared)[0]


def start_maps(
    client: Client,
    function: Callable[..., R],
    items: Mapping[str, Sequence[Any]],
    merge: Callable[[Sequence[R]], R],
    *shared: Any,
    result_bytes: int = 0,
) -> list[PendingResult[R]]:
    """Start several maps at once, each with a tree and a result of its own: few messages, whatever their number.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread, on one map after the other.
    function, merge, shared, result_bytes
        As for `start_blocks`.
    items
        Items of each map, at least one, by what its tasks are called after the stage; each item is a task. Tasks are
        submitted in this order, but results are merged before more are made.

    Returns
    -------
    The pending results, in the order of the maps.
    """
    if client is None:
        return [
            start_blocks(None, function, each, merge, *shared, name=name)
            for name, each in items.items()
        ]
    trees = []
    for name, each in items.items():
        plan = plan_tasks([1] * len(each), len(each), result_bytes)
        trees.append(_Tree(name_step(function, name), plan, [[item] for item in each]))
    return _start_trees(client, function, trees, merge, *shared)


class _Tree(NamedTuple):
    """A map to start: the name of its tasks, their plan, and the items of each, or futures of them."""

    step: str
    plan: TaskPlan
    parts: Sequence[Any]


def _start_trees(
    client: Client,
    function: Callable[..., R],
    trees: Sequence[_Tree],
    merge: Callable[[Sequence[R]], R],
    *shared: Any,
) -> list[PendingResult[R]]:
    """Start maps: the tasks of all of them together, then the merges of each level."""
    options = {"pure": False, "retries": RETRIES}
    n_runs = sum(plan.n_runs for _, plan, _ in trees)
    sent = [
        share_value(client, value, n_runs, f"{trees[0].step}-{index}")
        for index, value in enumerate(shared)
    ]
    leaves = client.map(
        _work_on_run,
        [part for tree in trees for part in tree.parts],
        [start for _, plan, _ in trees for start, _ in plan.runs],
        [plan.n_items for _, plan, _ in trees for _ in plan.runs],
        [plan.run_top for _, plan, _ in trees for _ in plan.runs],
        [plan.fan_in for _, plan, _ in trees for _ in plan.runs],
        *([value] * n_runs for value in (function, merge)),
        *sent,
        key=[(step, name_range("items", *run)) for step, plan, _ in trees for run in plan.runs],
        **options,
    )
    by_tree = _split(leaves, [plan.n_runs for _, plan, _ in trees])
    runs, futures = [plan.runs for _, plan, _ in trees], list(by_tree)
    for depth in range(max(len(plan.merge_levels) for _, plan, _ in trees)):
        inputs: list[list[Any]] = []
        arguments: list[tuple[int, int, int, int, int]] = []
        keys: list[TaskKey] = []
        higher = [n for n, (_, plan, _) in enumerate(trees) if len(plan.merge_levels) > depth]
        for number in higher:
            step, plan, _ = trees[number]
            level, n_items = plan.merge_levels[depth], plan.n_items
            size = plan.fan_in**level
            above = [(start, min(start + size, n_items)) for start in range(0, n_items, size)]
            inputs += _find_overlaps(runs[number], futures[number], above)
            arguments += [(*each, n_items, level, plan.fan_in) for each in above]
            keys += [(f"{step}-merge-{level}", name_range("items", *each)) for each in above]
            runs[number] = above
        # before tasks that make more to merge
        merged = client.map(
            _merge_parts,
            inputs,
            *zip(*arguments, strict=True),
            [merge] * len(inputs),
            key=keys,
            priority=1,
            **options,
        )
        parts = _split(merged, [len(runs[number]) for number in higher])
        for number, part in zip(higher, parts, strict=True):
            futures[number] = part
    return [
        PendingResult(top, own, _join_parts(plan.n_items, plan.fan_in, merge))
        for top, own, (_, plan, _) in zip(futures, by_tree, trees, strict=True)
    ]


def _join_parts(
    n_items: int, fan_in: int, merge: Callable[[Sequence[R]], R]
) -> Callable[[Sequence[list[Node[R]]]], list[Node[R]]]:
    """Function of the client that merges what workers have not merged."""
    top = find_top(n_items, fan_in)
    return lambda parts: _merge_parts(parts, 0, n_items, n_items, top, fan_in, merge)


def _split(values: Sequence[T], sizes: Sequence[int]) -> list[list[T]]:
    """Split a list into parts of some sizes."""
    rest = iter(values)
    return [[next(rest) for _ in range(size)] for size in sizes]


def run_blocks(
    client: Client,
    function: Callable[..., R],
    items: Sequence[Any] | LoadedItems,
    merge: Callable[[Sequence[R]], R],
    *shared: Any,
    costs: Sequence[int] | None = None,
    result_bytes: int = 0,
    name: str = "",
    fan_in: int = FAN_IN,
) -> R:
    """Do `start_blocks` and wait for the result."""
    options = {"costs": costs, "result_bytes": result_bytes, "name": name, "fan_in": fan_in}
    return start_blocks(client, function, items, merge, *shared, **options).wait()  # type: ignore[arg-type]


def _work_on_run(
    run: Sequence[Any],
    start: int,
    n_items: int,
    top: int | None,
    fan_in: int,
    function: Callable[..., R],
    merge: Callable[[Sequence[R]], R],
    *shared: Any,
) -> list[Node[R]]:
    """Map a function over a run of items, and merge the results as far as it goes."""
    leaves = (Node(0, index, function(item, *shared)) for index, item in enumerate(run, start))
    return merge_nodes(leaves, n_items, merge, top=top, fan_in=fan_in)


def _merge_parts(
    parts: Sequence[Sequence[Node[R]]],
    start: int,
    stop: int,
    n_items: int,
    level: int,
    fan_in: int,
    merge: Callable[[Sequence[R]], R],
) -> list[Node[R]]:
    """Merge what runs have made of the items from start to stop: a node of the tree."""
    nodes = (
        node
        for part in parts
        for node in part
        if start <= node.position * fan_in**node.level < stop
    )
    return merge_nodes(nodes, n_items, merge, top=level, fan_in=fan_in)


def _find_overlaps(
    runs: Sequence[tuple[int, int]], futures: Sequence[T], above: Sequence[tuple[int, int]]
) -> list[list[T]]:
    """What each range needs: the futures of the runs that have items of it."""
    needed: list[list[T]] = []
    first = 0
    for start, stop in above:
        while runs[first][1] <= start:
            first += 1
        last = first
        while last + 1 < len(runs) and runs[last + 1][0] < stop:
            last += 1
        needed.append(list(futures[first : last + 1]))
    return needed


@contextmanager
def listen_to_counts(client: Client, on_count: Callable[[int], None]) -> Iterator[str]:
    """Receive the numbers that functions report while they run on workers, on any machine.

    Parameters
    ----------
    client
        Dask client; without one, no number arrives.
    on_count
        Called with every number, in a thread of the client that has the context variables of this one.

    Yields
    ------
    Topic that `report_count` needs.
    """
    topic = f"pmf-counts-{uuid.uuid4().hex}"
    if client is None:
        yield topic
        return
    context = copy_context()
    client.subscribe_topic(topic, lambda event: context.run(on_count, event[1]))
    try:
        yield topic
    finally:
        client.unsubscribe_topic(topic)


def report_count(topic: str, count: int) -> None:
    """Send a number to the listener of a topic from a function that a Dask worker runs; elsewhere do nothing."""
    if "distributed" not in sys.modules:
        # importing it would take longer than a small run
        return
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return
    worker.log_event(topic, count)
