"""Maps of a function over items on workers; results are merged in a tree whose shape depends on the items alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Generic, TypeVar

from pmflib.running.clients import Client, count_threads, list_addresses
from pmflib.running.merge_tree import FAN_IN, Node, merge_nodes
from pmflib.running.task_names import name_range, name_step
from pmflib.running.task_plans import COPY_SHARE, TaskPlan, plan_tasks

T = TypeVar("T")
R = TypeVar("R")

RETRIES = 2
"""Number of times that a failed task is run again."""
RECALL_THREADS = 8
"""Threads that look up what is known already: files far away are asked about at the same time."""
SENT_BYTES = 1 << 16
"""Largest shared value that is sent along with each task, bytes; a larger one is a task of its own."""
ALL_SENT_BYTES = 1 << 20
"""Most that a shared value which is sent along may take in all tasks, bytes: they pass through the scheduler."""


@dataclass(frozen=True)
class PendingResult(Generic[R]):
    """A result that workers are computing.

    Parameters
    ----------
    root
        Future of the root of the tree of merges, or the root itself where there is no client.
    leaves
        Futures of the parts, for progress.
    """

    root: Any
    leaves: Sequence[Any]

    def n_done(self) -> int:
        """Number of finished parts."""
        return sum(leaf.done() for leaf in self.leaves)

    def wait(self, on_progress: Callable[[], None] | None = None) -> R:
        """Wait for the result; call ``on_progress`` about twice a second meanwhile."""
        if not hasattr(self.root, "result"):
            return _take_root(self.root)  # type: ignore[no-any-return]
        while not self.root.done():
            deadline = time.monotonic() + 0.5
            while not self.root.done() and time.monotonic() < deadline:
                time.sleep(0.002)
            if on_progress is not None:
                on_progress()
        return _take_root(self.root.result())  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class HeldItems:
    """Items in the memory of the workers that work on them, in runs of one task each.

    Parameters
    ----------
    plan
        Runs of the items.
    runs
        Futures of lists of items, or these lists where there is no client.
    """

    plan: TaskPlan
    runs: Sequence[Any]

    def __len__(self) -> int:
        """Number of items."""
        return self.plan.n_items


def start_blocks(
    client: Client,
    function: Callable[..., R],
    items: Sequence[Any] | HeldItems,
    merge: Callable[[Sequence[R]], R],
    *shared: Any,
    costs: Sequence[int] | None = None,
    result_bytes: int = 0,
    name: str = "",
    fan_in: int = FAN_IN,
) -> PendingResult[R]:
    """Map a function over items and merge the results in a tree whose shape depends on their number alone.

    A task works on a run of consecutive items, one task for each thread where there are more items than threads, and
    merges what it has as far as the tree allows, before anything is sent: see `pmflib.running.merge_tree`.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread: the same tree, the same bits.
    function
        Called as ``function(item, *shared)``; must change neither.
    items
        At least one: values that can be pickled, or what `keep_loaded` returned.
    merge
        Joins a list of results in order; must not change them.
    shared
        Sent once for all items; may be large.
    costs
        Cost of each item, by which runs are balanced; None takes items as equal. Held items have runs already.
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
            [item for run in items.runs for item in run] if isinstance(items, HeldItems) else items
        )
        return PendingResult(
            _work_on_run(values, 0, len(values), None, fan_in, function, merge, *shared), ()
        )
    if isinstance(items, HeldItems):
        parts, plan = (
            items.runs,
            plan_tasks(items.plan.costs, len(items.runs), result_bytes, fan_in),
        )
        plan = TaskPlan(plan.n_items, items.plan.bounds, plan.costs, plan.most_merged, fan_in)
    else:
        weights = [1] * len(items) if costs is None else costs
        plan = plan_tasks(weights, count_threads(client), result_bytes, fan_in)
        parts = [list(items[start:stop]) for start, stop in plan.runs]
    step, options = name_step(function, name), {"pure": False, "retries": RETRIES}
    sent = [
        _share(client, value, plan.n_runs, f"{step}-{place}") for place, value in enumerate(shared)
    ]
    settings = (plan.n_items, plan.run_top, fan_in, function, merge)
    starts = [start for start, _ in plan.runs]
    leaves = client.map(
        _work_on_run,
        list(parts),
        starts,
        *([value] * plan.n_runs for value in settings),
        *sent,
        key=[(step, name_range("items", *run)) for run in plan.runs],
        **options,
    )
    runs, futures = plan.runs, leaves
    for level in plan.merge_levels:
        size = fan_in**level
        above = [(start, min(start + size, plan.n_items)) for start in range(0, plan.n_items, size)]
        inputs = _find_overlaps(runs, futures, above)
        futures = client.map(
            _merge_parts,
            inputs,
            [start for start, _ in above],
            [stop for _, stop in above],
            *([value] * len(above) for value in (plan.n_items, level, fan_in, merge)),
            key=[(f"{step}-merge-{level}", name_range("items", *each)) for each in above],
            **options,
        )
        runs = above
    return PendingResult(futures[0], leaves)


def run_blocks(
    client: Client,
    function: Callable[..., R],
    items: Sequence[Any] | HeldItems,
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
    leaves = (Node(0, place, function(item, *shared)) for place, item in enumerate(run, start))
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
        node for part in parts for node in part if start <= node.place * fan_in**node.level < stop
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


def _take_root(nodes: Sequence[Node[Any]]) -> Any:
    (root,) = nodes
    return root.value


def measure_shared(value: Any) -> int | None:
    """Bytes that a shared value takes where it is sent along with tasks, about; None where it may be large.

    Numbers, None, and functions that workers import by their names, add nothing to what a task takes anyway.
    """
    if value is None or isinstance(value, bool | int | float):
        return 0
    if isinstance(value, str):
        return len(value)
    if isinstance(value, FunctionType):
        # others are sent with all that they refer to
        return 0 if value.__module__ != "__main__" and value.__qualname__.isidentifier() else None
    return getattr(value, "nbytes", None)


def is_sent_along(n_bytes: int | None, n_tasks: int) -> bool:
    """Whether a shared value of so many bytes is sent along with each of so many tasks, and is no task of its own."""
    return n_bytes is not None and n_bytes <= min(SENT_BYTES, ALL_SENT_BYTES // n_tasks)


def _share(client: Client, value: Any, n_tasks: int, name: str) -> list[Any]:
    """Give a value to tasks: itself, or the future that each of them takes it from.

    Parameters are the argument of a task, not scattered data: they can be made again when a worker is lost. Where there
    are many tasks, some workers take a copy each, and pass it on.
    """
    if is_sent_along(measure_shared(value), n_tasks):
        return [value] * n_tasks
    options = {"pure": False, "retries": RETRIES}
    source = client.submit(_give_back, value, key=(f"{name}-shared", "source"), **options)
    if n_tasks <= 2 * COPY_SHARE:
        return [source] * n_tasks
    n_copies = -(-n_tasks // COPY_SHARE)
    addresses = list_addresses(client)
    copies = [
        client.submit(
            _give_back,
            source,
            key=(f"{name}-shared", name_range("copy", place, place + 1)),
            workers=[addresses[place * len(addresses) // n_copies]],
            allow_other_workers=True,
            **options,
        )
        for place in range(n_copies)
    ]
    return [copies[place // COPY_SHARE] for place in range(n_tasks)]


def map_items(
    client: Client,
    function: Callable[..., R],
    items: Sequence[Any],
    *shared: Any,
    known: Sequence[R | None] | None = None,
    on_result: Callable[[int], None] | None = None,
    name: str = "",
) -> list[R]:
    """Map a function over items; results in the order of the items.

    Parameters
    ----------
    client, function, items, shared
        As for `start_blocks`; there may be no items.
    known
        Results that are known already, None for the others, as `recall_items` gives them: only the others go to
        workers. Where there are none, the client is not used.
    on_result
        Called with the number of items done, each time one is.
    name
        What the tasks are called after the stage; by default as the function.
    """
    if known is not None:
        missing = [item for item, result in zip(items, known, strict=True) if result is None]
        n_known = len(items) - len(missing)

        def on_missing(done: int) -> None:
            if on_result is not None:
                on_result(n_known + done)

        made = iter(map_items(client, function, missing, *shared, on_result=on_missing, name=name))
        return [next(made) if result is None else result for result in known]
    if not items:
        return []
    if client is None:
        results = []
        for item in items:
            results.append(function(item, *shared))
            if on_result is not None:
                on_result(len(results))
        return results
    from distributed import as_completed

    step = name_step(function, name)
    sent = [
        _share(client, value, len(items), f"{step}-{place}") for place, value in enumerate(shared)
    ]
    futures = client.map(
        function,
        list(items),
        *sent,
        key=[(step, name_range("items", place, place + 1)) for place in range(len(items))],
        pure=False,
        retries=RETRIES,
    )
    for done, _ in enumerate(as_completed(futures, loop=client.loop), 1):
        if on_result is not None:
            on_result(done)
    return client.gather(futures)  # type: ignore[no-any-return]


def recall_items(
    recall: Callable[..., R | None], items: Sequence[Any], *shared: Any
) -> list[R | None]:
    """Ask a cheap function, here, which results are known already: see `map_items`.

    Parameters
    ----------
    recall
        Called as ``recall(item, *shared)``, from several threads; gives None where the work is yet to be done.
    items, shared
        As for `map_items`.
    """
    with ThreadPoolExecutor(RECALL_THREADS) as pool:
        return list(pool.map(lambda item: recall(item, *shared), items))


def keep_loaded(
    client: Client,
    load: Callable[[T], R],
    items: Sequence[T],
    costs: Sequence[int] | None = None,
    name: str = "",
    n_tasks: int = 0,
) -> HeldItems:
    """Load items into the memory of the workers that will work on them, in runs of one task each.

    Items of a worker that is lost are loaded again, by others.

    Parameters
    ----------
    client, costs, name
        As for `start_blocks`.
    load
        Called with an item.
    items
        At least one.
    n_tasks
        Number of runs, at most; 0 is one for each thread.
    """
    weights = [1] * len(items) if costs is None else costs
    plan = plan_tasks(weights, n_tasks or count_threads(client))
    parts = [list(items[start:stop]) for start, stop in plan.runs]
    if client is None:
        return HeldItems(plan, [_load_run(part, load) for part in parts])
    step = name_step(load, name)
    # not bound to workers, not even loosely: while there is none, Dask lays such tasks aside for the lost one, and a
    # worker that joins does not get them. Unbound, as many as there are threads are dealt to idle workers in turn
    runs = client.map(
        _load_run,
        parts,
        [load] * plan.n_runs,
        key=[(step, name_range("items", *run)) for run in plan.runs],
        pure=False,
        retries=RETRIES,
    )
    return HeldItems(plan, runs)


def _load_run(run: Sequence[T], load: Callable[[T], R]) -> list[R]:
    return [load(item) for item in run]


def send_items(client: Client, values: Sequence[T]) -> list[Any]:
    """Send values to workers once, for several maps: futures, or the values themselves without a client.

    Values of a worker that is lost are lost too, and the maps that need them fail: send what the caller can make again.
    """
    if client is None:
        return list(values)
    return client.scatter(list(values), hash=False)  # type: ignore[no-any-return]


def _give_back(value: T) -> T:
    return value
