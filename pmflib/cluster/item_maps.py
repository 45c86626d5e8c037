"""Maps of a function over items with one task per item; values shared by tasks, and items kept by workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from pmflib.cluster.clients import Client, count_threads
from pmflib.cluster.task_plans import (
    RETRIES,
    TaskPlan,
    name_range,
    name_step,
    plan_tasks,
)

T = TypeVar("T")

SENT_BYTES = 1 << 16
"""Largest shared value that is sent with each task, bytes; a larger one becomes a task of its own."""
ALL_SENT_BYTES = 1 << 20
"""Maximum total size of a shared value sent with all tasks, bytes, since these pass through the scheduler."""


def measure_shared(value: Any) -> int | None:
    """Estimate the size of a shared value sent with tasks, bytes; None if it may be large.

    Numbers, None, and functions importable by name add nothing to the size of a task. Models are lists of arrays, or
    nested lists.
    """
    if value is None or isinstance(value, bool | int | float):
        return 0
    if isinstance(value, str):
        return len(value)
    if isinstance(value, FunctionType):
        # other objects are sent with everything they refer to
        return 0 if value.__module__ != "__main__" and value.__qualname__.isidentifier() else None
    if isinstance(value, list | tuple):
        sizes = [measure_shared(each) if _is_of_arrays(each) else None for each in value]
        return None if None in sizes else sum(filter(None, sizes))
    return getattr(value, "nbytes", None)


def _is_of_arrays(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def is_sent_along(n_bytes: int | None, n_tasks: int) -> bool:
    """Return whether a shared value is sent with each task rather than as a task of its own."""
    return n_bytes is not None and n_bytes <= min(SENT_BYTES, ALL_SENT_BYTES // n_tasks)


def share_value(client: Client, value: Any, n_tasks: int, name: str) -> Any:
    """Prepare a value for tasks: the value itself, or a future that each task uses.

    The value is the result of a task rather than scattered data, so that it can be recomputed if a worker is lost.
    Workers that have fetched it serve it to others.
    """
    if is_sent_along(measure_shared(value), n_tasks):
        return value
    options = {"pure": False, "retries": RETRIES}
    return client.submit(_give_back, value, key=(f"{name}-shared", "source"), **options)


def _give_back(value: T) -> T:
    return value


R = TypeVar("R")

RECALL_THREADS = 8
"""Number of threads that look up known results, so that remote files are queried concurrently."""


def map_items(
    client: Client,
    function: Callable[..., R],
    items: Sequence[Any],
    *shared: Any,
    known: Sequence[R | None] | None = None,
    on_result: Callable[[int], None] | None = None,
    name: str = "",
) -> list[R]:
    """Map a function over items; results are in the order of the items.

    Parameters
    ----------
    client, function, items, shared
        As for `pmflib.cluster.maps.start_blocks`; items may be empty.
    known
        Results that are already known, None for the others, from `recall_items`; only the others are sent to workers.
        If there are none, the client is not used.
    on_result
        Called with the number of finished items after each one.
    name
        Name of the tasks after the stage; by default that of the function.
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
        share_value(client, value, len(items), f"{step}-{index}")
        for index, value in enumerate(shared)
    ]
    futures = client.map(
        function,
        list(items),
        *([value] * len(items) for value in sent),
        key=[(step, name_range("items", index, index + 1)) for index in range(len(items))],
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
    """Look up known results by a cheap function in this process; see `map_items`.

    Parameters
    ----------
    recall
        Called as ``recall(item, *shared)`` from several threads; returns None if the work is not yet done.
    items, shared
        As for `map_items`.
    """
    with ThreadPoolExecutor(RECALL_THREADS) as pool:
        return list(pool.map(lambda item: recall(item, *shared), items))


@dataclass(frozen=True, eq=False)
class LoadedItems:
    """Items in the memory of the workers that process them, in runs of one task each.

    Parameters
    ----------
    plan
        Runs of the items.
    runs
        Futures of lists of items, or the lists themselves without a client.
    """

    plan: TaskPlan
    runs: Sequence[Any]

    def __len__(self) -> int:
        """Return the number of items."""
        return self.plan.n_items


def keep_loaded(
    client: Client,
    load: Callable[[T], R],
    items: Sequence[T],
    costs: Sequence[int] | None = None,
    name: str = "",
    n_tasks: int = 0,
) -> LoadedItems:
    """Load items into the memory of the workers that will process them, in runs of one task each.

    Items of a lost worker are loaded again by others.

    Parameters
    ----------
    client, costs, name
        As for `pmflib.cluster.maps.start_blocks`.
    load
        Called with an item to load it.
    items
        Items, at least one.
    n_tasks
        Maximum number of runs; 0 for one per thread.
    """
    weights = [1] * len(items) if costs is None else costs
    plan = plan_tasks(weights, n_tasks or count_threads(client))
    parts = [list(items[start:stop]) for start, stop in plan.runs]
    if client is None:
        return LoadedItems(plan, [_load_run(part, load) for part in parts])
    step = name_step(load, name)
    # not bound to workers, not even loosely: if a bound worker is lost, Dask holds such tasks back for it and does not
    # give them to a worker that joins. Unbound tasks, as many as threads, are assigned to idle workers in turn
    runs = client.map(
        _load_run,
        parts,
        [load] * plan.n_runs,
        key=[(step, name_range("items", *run)) for run in plan.runs],
        pure=False,
        retries=RETRIES,
    )
    return LoadedItems(plan, runs)


def _load_run(run: Sequence[T], load: Callable[[T], R]) -> list[R]:
    return [load(item) for item in run]


def send_items(client: Client, values: Sequence[T]) -> list[Any]:
    """Send values to workers once for several maps; returns futures, or the values themselves without a client.

    Values are lost with their worker, and the maps that need them fail, so send only values that the caller can
    recompute.
    """
    if client is None:
        return list(values)
    return client.scatter(list(values), hash=False)  # type: ignore[no-any-return]
