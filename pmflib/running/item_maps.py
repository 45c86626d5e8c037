"""Maps of a function over items on workers, a task each; results in the order of the items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from pmflib.running.clients import Client
from pmflib.running.shared_values import share_value
from pmflib.running.task_names import name_range, name_step
from pmflib.running.task_plans import RETRIES

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
        As for `pmflib.running.maps.start_blocks`; there may be no items.
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
        share_value(client, value, len(items), f"{step}-{place}")
        for place, value in enumerate(shared)
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
