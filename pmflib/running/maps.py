"""Maps of a function over items on workers; results are merged in a tree whose shape depends on the items alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pmflib.running.clients import Client, count_threads

T = TypeVar("T")
R = TypeVar("R")

FAN_IN = 8
"""Partial results merged at a time."""
RETRIES = 2
"""Number of times that a failed task is run again."""
BUNDLES = 4
"""Least number of bundles per thread for which items are bundled at all: with fewer, threads would be idle."""
RECALL_THREADS = 8
"""Threads that look up what is known already: files far away are asked about at the same time."""
SENT_BYTES = 1 << 16
"""Largest shared value that is sent along with each task, bytes; a larger one is a task of its own."""


@dataclass(frozen=True)
class PendingResult(Generic[R]):
    """A result that workers are computing.

    Parameters
    ----------
    root
        Future of the merged result, or the result itself where there is no client.
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
            return self.root  # type: ignore[no-any-return]
        while not self.root.done():
            deadline = time.monotonic() + 0.5
            while not self.root.done() and time.monotonic() < deadline:
                time.sleep(0.002)
            if on_progress is not None:
                on_progress()
        return self.root.result()  # type: ignore[no-any-return]


def start_blocks(
    client: Client,
    function: Callable[..., R],
    items: Sequence[Any],
    merge: Callable[[Sequence[R]], R],
    *shared: Any,
    fan_in: int = FAN_IN,
    bundle: bool = True,
) -> PendingResult[R]:
    """Map a function over items and merge the results in a tree whose shape depends on their number alone.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread: the same tree, the same bits.
    function
        Called as ``function(item, *shared)``; must change neither.
    items
        At least one: values that can be pickled, or futures of the same client.
    merge
        Joins a list of results in order; must not change them.
    shared
        Sent once for all items; may be large.
    fan_in
        Results merged at a time, at least 2.
    bundle
        Whether a worker may hold ``fan_in`` results at a time: where there are many more items than threads, a Dask
        task then works on that many, and merges them, a branch of the same tree.

    Returns
    -------
    The pending result.
    """
    if client is None:
        level = [function(item, *shared) for item in items]
        while len(level) > 1:
            level = [merge(level[i : i + fan_in]) for i in range(0, len(level), fan_in)]
        return PendingResult(level[0], ())
    sent = _send_shared(client, shared)
    work: Callable[..., R] = function
    parts, fixed = list(items), list(sent)
    if bundle and len(items) >= fan_in * BUNDLES * count_threads(client):
        work = _run_bundle
        parts = [parts[i : i + fan_in] for i in range(0, len(parts), fan_in)]
        fixed = [function, merge, *sent]
    options = {"pure": False, "retries": RETRIES}
    leaves = client.map(work, parts, *([value] * len(parts) for value in fixed), **options)
    futures = leaves
    while len(futures) > 1:
        branches = [futures[i : i + fan_in] for i in range(0, len(futures), fan_in)]
        futures = client.map(merge, branches, **options)
    return PendingResult(futures[0], leaves)


def _run_bundle(
    items: Sequence[Any],
    function: Callable[..., R],
    merge: Callable[[Sequence[R]], R],
    *shared: Any,
) -> R:
    return merge([function(item, *shared) for item in items])


def run_blocks(
    client: Client,
    function: Callable[..., R],
    items: Sequence[Any],
    merge: Callable[[Sequence[R]], R],
    *shared: Any,
    fan_in: int = FAN_IN,
) -> R:
    """Do `start_blocks` and wait for the result."""
    return start_blocks(client, function, items, merge, *shared, fan_in=fan_in).wait()


def map_items(
    client: Client,
    function: Callable[..., R],
    items: Sequence[Any],
    *shared: Any,
    known: Sequence[R | None] | None = None,
    on_result: Callable[[int], None] | None = None,
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
    """
    if known is not None:
        missing = [item for item, result in zip(items, known, strict=True) if result is None]
        n_known = len(items) - len(missing)

        def on_missing(done: int) -> None:
            if on_result is not None:
                on_result(n_known + done)

        made = iter(map_items(client, function, missing, *shared, on_result=on_missing))
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

    futures = client.map(
        function,
        list(items),
        *([value] * len(items) for value in _send_shared(client, shared)),
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


def keep_loaded(client: Client, load: Callable[[T], R], items: Sequence[T]) -> list[Any]:
    """Load items into the memory of the workers that will use them: futures, or values without a client.

    Items of a worker that is lost are loaded again.
    """
    if client is None:
        return [load(item) for item in items]
    return client.map(load, list(items), pure=False, retries=RETRIES)  # type: ignore[no-any-return]


def send_items(client: Client, values: Sequence[T]) -> list[Any]:
    """Send values to workers once, for several maps: futures, or the values themselves without a client.

    Values of a worker that is lost are lost too, and the maps that need them fail: send what the caller can make again.
    """
    if client is None:
        return list(values)
    return client.scatter(list(values), hash=False)  # type: ignore[no-any-return]


def _send_shared(client: Any, shared: Sequence[Any]) -> list[Any]:
    """Values that all tasks of a map share: small arrays as they are, others as futures, so that they travel once."""
    # the argument of a task, not scattered data: it can be made again when a worker is lost
    return [
        value
        if getattr(value, "nbytes", SENT_BYTES + 1) <= SENT_BYTES
        else client.submit(_give_back, value, pure=False)
        for value in shared
    ]


def _give_back(value: T) -> T:
    return value
