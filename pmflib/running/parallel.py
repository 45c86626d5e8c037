"""Blocks on Dask: clients, and maps whose merge tree has a fixed shape."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pmflib.errors import ConfigError
from pmflib.running.memory_plan import FAN_IN
from pmflib.running.processors import count_processors

if TYPE_CHECKING:
    from pmflib.config import ClusterConfig

T = TypeVar("T")
R = TypeVar("R")

Client = Any
"""A Dask client; None stands for this thread alone."""

_END_QUIETLY = """
import logging, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
logging.getLogger("distributed.worker.state_machine").setLevel(logging.ERROR)
"""
"""Run by each worker process: Ctrl-C in a terminal reaches all processes, but it is the run that ends its workers,
and tasks that are cancelled then are no news."""

_KEEP_MEMORY = {
    f"distributed.nanny.pre-spawn-environ.MALLOC_{name}_THRESHOLD_": size
    for name, size in (("TRIM", 64 << 20), ("MMAP", 32 << 20))
}
"""Options of Dask: the environment that worker processes begin with. By default freed memory goes back to the system at
once; blocks of a few MiB that come and go all the time would cost half as much to map again as to read."""

RETRIES = 2
"""Times that a block is tried again when its task fails."""
BUNDLES = 4
"""Bundles of items that each thread must get for items to be bundled at all: fewer would leave threads idle."""
SENT_BYTES = 1 << 16
"""Size of what is sent along with each task, bytes; more is made a task of its own, which the others ask for."""


@contextmanager
def start_workers(cluster: ClusterConfig) -> Iterator[str]:
    """Have workers ready for as long as the context lasts.

    Parameters
    ----------
    cluster
        Where to work. PMF_DASK_ADDRESS, and then its address, name a scheduler that runs already; without either,
        workers are started on this machine, on loopback, one thread each.

    Yields
    ------
    Address of the scheduler.
    """
    address = os.environ.get("PMF_DASK_ADDRESS") or cluster.address
    if address:
        yield address
        return
    import dask
    from distributed import LocalCluster

    n = cluster.workers or count_processors()
    options = {"preload": _END_QUIETLY} if cluster.processes else {}
    with (
        _quiet("distributed"),
        dask.config.set(_KEEP_MEMORY),
        LocalCluster(
            n_workers=n if cluster.processes else 1,
            threads_per_worker=1 if cluster.processes else n,
            processes=cluster.processes,
            host="127.0.0.1" if cluster.processes else None,
            # port 0 and not None, which still asks for the default port
            dashboard_address="127.0.0.1:0",
            **options,
        ) as local,
    ):
        yield local.scheduler_address


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Have a logger, and those below it, speak of warnings only."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def open_client(address: str) -> Iterator[Client]:
    """Connect to a Dask scheduler.

    Parameters
    ----------
    address
        As `start_workers` gives it.

    Yields
    ------
    The client.

    Raises
    ------
    ConfigError
        If no scheduler answers.
    """
    from distributed import Client

    try:
        client = Client(address, set_as_default=False, timeout=30)
    except (OSError, TimeoutError, ValueError) as error:
        raise ConfigError(
            f"cluster.address = {address!r}: no Dask scheduler answers ({error}); "
            "start one, or leave the address empty"
        ) from error
    with client:
        yield client


def check_workers_see(client: Client, folder: str) -> None:
    """Check that every worker can open a folder.

    Raises
    ------
    ConfigError
        If one cannot: stores must be on storage that all workers share.
    """
    seen = client.run(os.path.isdir, folder)
    if blind := sorted(worker for worker, sees in seen.items() if not sees):
        raise ConfigError(
            f"store {folder!r} is not seen by workers {blind}; put it on storage that all of them share"
        )


def count_threads(client: Client) -> int:
    """Threads that work for a client; 1 without one."""
    return 1 if client is None else max(1, sum(client.nthreads().values()))


def find_memory_limit() -> int:
    """Bytes that a plan may use on this machine: 70 % of what is free, and of what the process is allowed."""
    import psutil
    from distributed.system import MEMORY_LIMIT

    return int(0.7 * min(MEMORY_LIMIT, psutil.virtual_memory().available))


@dataclass(frozen=True)
class PendingResult(Generic[R]):
    """A result under way.

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
        """Parts finished so far."""
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
        At least one: values that travel well, or futures of the same client.
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
    # parameters are the argument of a task, not scattered data: they can be made again when a worker is lost
    sent = [
        value
        if getattr(value, "nbytes", SENT_BYTES + 1) <= SENT_BYTES
        else client.submit(_give_back, value, pure=False)
        for value in shared
    ]
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
    on_result: Callable[[int], None] | None = None,
) -> list[R]:
    """Map a function over items; results in the order of the items.

    Parameters
    ----------
    client, function, items, shared
        As for `start_blocks`; no item is legal.
    on_result
        Called with the number of items done, each time one is.
    """
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
        *([value] * len(items) for value in shared),
        pure=False,
        retries=RETRIES,
    )
    for done, _ in enumerate(as_completed(futures, loop=client.loop), 1):
        if on_result is not None:
            on_result(done)
    return client.gather(futures)  # type: ignore[no-any-return]


@contextmanager
def hear_counts(client: Client, on_count: Callable[[int], None]) -> Iterator[str]:
    """Hear the numbers that functions tell while they run on workers, wherever these are.

    Parameters
    ----------
    client
        Dask client; without one nothing is heard.
    on_count
        Called with every number, in a thread of the client.

    Yields
    ------
    The topic to give to `tell_count`.
    """
    topic = f"pmf-counts-{uuid.uuid4().hex}"
    if client is None:
        yield topic
        return
    client.subscribe_topic(topic, lambda event: on_count(event[1]))
    try:
        yield topic
    finally:
        client.unsubscribe_topic(topic)


def tell_count(topic: str, count: int) -> None:
    """Send a number to who hears a topic, from inside a function that a Dask worker runs; else do nothing."""
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return
    worker.log_event(topic, count)


def keep_loaded(client: Client, load: Callable[[T], R], items: Sequence[T]) -> list[Any]:
    """Load items where they will be worked on, and keep them there: futures, or values without a client.

    A worker that is lost takes its items along; they are loaded again from where they came.
    """
    if client is None:
        return [load(item) for item in items]
    return client.map(load, list(items), pure=False, retries=RETRIES)  # type: ignore[no-any-return]


def send_items(client: Client, values: Sequence[T]) -> list[Any]:
    """Send values to workers once, for several maps: futures, or the values themselves without a client.

    What a lost worker held is lost with it, and the maps that need it fail: for what a stage can make again.
    """
    if client is None:
        return list(values)
    return client.scatter(list(values), hash=False)  # type: ignore[no-any-return]


def _give_back(value: T) -> T:
    return value
