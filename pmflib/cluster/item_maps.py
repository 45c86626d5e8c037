"""Maps of a function over items on workers, a task each; values that tasks share, items that workers keep."""

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
"""Largest shared value that is sent along with each task, bytes; a larger one is a task of its own."""
ALL_SENT_BYTES = 1 << 20
"""Most that a shared value which is sent along may take in all tasks, bytes: they pass through the scheduler."""


def measure_shared(value: Any) -> int | None:
    """Bytes that a shared value takes where it is sent along with tasks, about; None where it may be large.

    Numbers, None, and functions that workers import by their names, add nothing to what a task takes anyway. Models
    are lists of arrays, or of such lists.
    """
    if value is None or isinstance(value, bool | int | float):
        return 0
    if isinstance(value, str):
        return len(value)
    if isinstance(value, FunctionType):
        # others are sent with all that they refer to
        return 0 if value.__module__ != "__main__" and value.__qualname__.isidentifier() else None
    if isinstance(value, list | tuple):
        sizes = [measure_shared(each) if _is_of_arrays(each) else None for each in value]
        return None if None in sizes else sum(filter(None, sizes))
    return getattr(value, "nbytes", None)


def _is_of_arrays(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def is_sent_along(n_bytes: int | None, n_tasks: int) -> bool:
    """Whether a shared value of so many bytes is sent along with each of so many tasks, and is no task of its own."""
    return n_bytes is not None and n_bytes <= min(SENT_BYTES, ALL_SENT_BYTES // n_tasks)


def share_value(client: Client, value: Any, n_tasks: int, name: str) -> Any:
    """Prepare a value for tasks: itself, or the future that each of them takes it from.

    The value is the result of a task and not scattered data, so that it can be made again when a worker is lost.
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
"""Threads that look up what is known already: files far away are asked about at the same time."""


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
        As for `pmflib.cluster.maps.start_blocks`; there may be no items.
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


@dataclass(frozen=True, eq=False)
class LoadedItems:
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


def keep_loaded(
    client: Client,
    load: Callable[[T], R],
    items: Sequence[T],
    costs: Sequence[int] | None = None,
    name: str = "",
    n_tasks: int = 0,
) -> LoadedItems:
    """Load items into the memory of the workers that will work on them, in runs of one task each.

    Items of a worker that is lost are loaded again, by others.

    Parameters
    ----------
    client, costs, name
        As for `pmflib.cluster.maps.start_blocks`.
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
        return LoadedItems(plan, [_load_run(part, load) for part in parts])
    step = name_step(load, name)
    # not bound to workers, not even loosely: while there is none, Dask lays such tasks aside for the lost one, and a
    # worker that joins does not get them. Unbound, as many as there are threads are assigned to idle workers in turn
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
    """Send values to workers once, for several maps: futures, or the values themselves without a client.

    Values of a worker that is lost are lost too, and the maps that need them fail: send what the caller can make again.
    """
    if client is None:
        return list(values)
    return client.scatter(list(values), hash=False)  # type: ignore[no-any-return]
