"""Maps of a function over items on workers, merged in a tree of fixed shape; progress reports from workers."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from pmflib.cluster.clients import Client, count_threads
from pmflib.cluster.item_maps import LoadedItems, share_value
from pmflib.cluster.task_plans import (
    FAN_IN,
    RETRIES,
    Node,
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
    """A result being computed by workers.

    Parameters
    ----------
    parts
        Futures of the highest nodes of the tree that workers merge, or the nodes themselves without a client.
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
        # a single request, answered when the last part is ready
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
    """Map a function over items and merge the results in a tree whose shape depends only on the number of items.

    Each task processes a run of consecutive items; if there are more items than threads, there is one task per thread.
    It merges its results as far as the tree allows before anything is sent; see `pmflib.cluster.task_plans`.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread with the same tree and therefore equal bits.
    function
        Called as ``function(item, *shared)``; must not modify its arguments.
    items
        Items, at least one: values that can be pickled, or the result of `pmflib.cluster.item_maps.keep_loaded`.
    merge
        Merges a list of results in order, without modifying them.
    shared
        Additional arguments, sent once for all items; may be large.
    costs
        Cost of each item, used to balance runs; None treats items as equal. Loaded items already have runs.
    result_bytes
        Size of a result in bytes, if large: few large results are merged at a time.
    name
        Name of the tasks after the stage; by default that of the function.
    fan_in
        Number of results merged at a time, at least 2.

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
    step = name_step(function, name)
    sent = _share_all(client, step, plan.n_runs, shared)
    return _start_tree(client, function, step, plan, parts, merge, sent)


def start_maps(
    client: Client,
    function: Callable[..., R],
    items: Mapping[str, Sequence[Any]],
    merge: Callable[[Sequence[R]], R],
    *shared: Any,
    result_bytes: int = 0,
) -> list[PendingResult[R]]:
    """Start several maps, each with its own tree and result.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread on one map after the other.
    function, merge, shared, result_bytes
        As for `start_blocks`.
    items
        Items of each map, at least one, keyed by the name of its tasks; each item is a task. Tasks are submitted in
        this order, but results are merged before more are computed.

    Returns
    -------
    The pending results, in the order of the maps.
    """
    if client is None:
        return [
            start_blocks(None, function, each, merge, *shared, name=name)
            for name, each in items.items()
        ]
    steps = [name_step(function, name) for name in items]
    sent = _share_all(client, steps[0], sum(map(len, items.values())), shared)
    pending = []
    for step, each in zip(steps, items.values(), strict=True):
        plan = plan_tasks([1] * len(each), len(each), result_bytes)
        parts = [[item] for item in each]
        pending.append(_start_tree(client, function, step, plan, parts, merge, sent))
    return pending


def _share_all(client: Client, step: str, n_tasks: int, shared: Sequence[Any]) -> list[Any]:
    """Return shared values in the form that tasks take: the value itself or a future."""
    return [
        share_value(client, value, n_tasks, f"{step}-{index}") for index, value in enumerate(shared)
    ]


def _start_tree(
    client: Client,
    function: Callable[..., R],
    step: str,
    plan: TaskPlan,
    parts: Sequence[Any],
    merge: Callable[[Sequence[R]], R],
    sent: Sequence[Any],
) -> PendingResult[R]:
    """Start the tasks of a map on items or futures, and the merges of each level."""
    options = {"pure": False, "retries": RETRIES}
    constants = plan.n_items, plan.run_top, plan.fan_in, function, merge, *sent
    leaves = client.map(
        _work_on_run,
        parts,
        [start for start, _ in plan.runs],
        *([value] * plan.n_runs for value in constants),
        key=[(step, name_range("items", *run)) for run in plan.runs],
        **options,
    )
    runs, futures = plan.runs, leaves
    for level in plan.merge_levels:
        size = plan.fan_in**level
        starts = range(0, plan.n_items, size)
        above = [(start, min(start + size, plan.n_items)) for start in starts]
        futures = client.map(
            _merge_parts,
            _find_overlaps(runs, futures, above),
            *zip(*above, strict=True),
            *([value] * len(above) for value in (plan.n_items, level, plan.fan_in, merge)),
            key=[(f"{step}-merge-{level}", name_range("items", *each)) for each in above],
            # before tasks that produce more results to merge
            priority=1,
            **options,
        )
        runs = above
    return PendingResult(futures, leaves, _join_parts(plan.n_items, plan.fan_in, merge))


def _join_parts(
    n_items: int, fan_in: int, merge: Callable[[Sequence[R]], R]
) -> Callable[[Sequence[list[Node[R]]]], list[Node[R]]]:
    """Return the client's function that merges what workers have not merged."""
    top = find_top(n_items, fan_in)
    return lambda parts: _merge_parts(parts, 0, n_items, n_items, top, fan_in, merge)


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
    """Run `start_blocks` and wait for the result."""
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
    """Map a function over a run of items, and merge the results within the run."""
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
    """Merge results of runs from items start to stop into a node of the tree."""
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
    """Return the futures of the runs that overlap each range."""
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
    """Receive numbers that functions report while they run on workers.

    Parameters
    ----------
    client
        Dask client; without one, no numbers arrive.
    on_count
        Called with every number, in a thread with the context variables of this one.

    Yields
    ------
    Topic for `report_count`.
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
    """Send a number from a function on a Dask worker to the listener of a topic; does nothing elsewhere."""
    if "distributed" not in sys.modules:
        # importing distributed would take longer than a small run
        return
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return
    worker.log_event(topic, count)
