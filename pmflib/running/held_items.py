"""Items that stay in the memory of workers, for several maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pmflib.running.clients import Client, count_threads
from pmflib.running.task_names import name_range, name_step
from pmflib.running.task_plans import RETRIES, TaskPlan, plan_tasks

T = TypeVar("T")
R = TypeVar("R")


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
        As for `pmflib.running.maps.start_blocks`.
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
