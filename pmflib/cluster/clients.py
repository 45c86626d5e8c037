"""Dask clients: connected with patience, watched, and asked for the threads and the memory of their workers."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any
from weakref import WeakKeyDictionary

from pmflib.cluster.membership import Membership, Requirement
from pmflib.cluster.memory import ClusterMemory
from pmflib.cluster.workers import ClusterOptions, find_scheduler, find_security, quieten
from pmflib.core.errors import ClusterError, ClusterWarning, ConfigError
from pmflib.core.process_usage import ProcessUsage

Client = Any
"""A Dask client, or None to work in this thread alone."""

PATIENCE = 30.0
"""Seconds that a client waits for a scheduler and its first worker where nothing is configured."""
CONNECT_SECONDS = 10.0
"""Seconds of one attempt to connect to a scheduler."""
ANSWER_SECONDS = 5.0
"""Seconds in which workers say what they have used, before and after a stage."""

_members: WeakKeyDictionary[Any, Membership] = WeakKeyDictionary()
"""Workers of the clients that are open."""
_expected_threads: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""Threads that are expected to work for a client, where more may come than there are."""


def start_client(address: str, seconds: float, security: Any = None) -> Any:
    """Connect to a Dask scheduler.

    Parameters
    ----------
    address
        Address of the scheduler.
    seconds
        Longest wait for it.
    security
        Keys of its connections; None for those that Dask is configured with.

    Returns
    -------
    The client, which is no default. Whoever asked for it closes it.

    Raises
    ------
    OSError
        If it does not answer, or its keys do not fit.
    ValueError
        If the address is none.

    Notes
    -----
    Dask leaves a client that does not connect to Python's collector of garbage, which may come upon it while another
    client, or a cluster, starts its thread. To close it takes the lock that the other holds, and both wait for ever.
    """
    from distributed import Client

    client = Client.__new__(Client)
    try:
        client.__init__(address, set_as_default=False, timeout=seconds, security=security)
    except BaseException:
        with suppress(Exception):
            client.close()
            # one that Dask has closed itself keeps its thread
            client._loop_runner.stop()
        raise
    return client


@contextmanager
def _silence(name: str) -> Iterator[None]:
    """Let a logger report nothing; unlike levels, contexts of several threads may end in any order."""

    def refuse(record: logging.LogRecord) -> bool:
        return False

    logger = logging.getLogger(name)
    logger.addFilter(refuse)
    try:
        yield
    finally:
        logger.removeFilter(refuse)


@contextmanager
def open_client(address: str, cluster: ClusterOptions | None = None) -> Iterator[Client]:
    """Connect to a Dask scheduler, wait until it has a worker, and watch which workers it has while the context lasts.

    Errors that mean that the scheduler or its workers have gone, or were killed, are raised from here as what a user
    can do about them. Workers are waited for, and watched, by `pmflib.cluster.membership.Membership`.

    Parameters
    ----------
    address
        As `use_workers` gives it.
    cluster
        Section ``cluster`` of the configuration: how long to wait, and what workers may use. By default half a minute.

    Yields
    ------
    The client; None where the address is empty.

    Raises
    ------
    ConfigError
        If the address is none, or a worker does not fit: another version of this package, a folder not seen.
    ClusterError
        If no scheduler answers, or it has no worker, for as long as the patience lasts.
    LostSchedulerError
        If the scheduler goes while it is used.
    MemoryPlanError
        If a worker that joins has not the memory that is planned, or workers were killed for using more.
    """
    if not address:
        yield None
        return
    from asyncio import CancelledError

    patience = PATIENCE if cluster is None else cluster.patience
    if address.startswith("inproc"):
        # threads of this process come and go with it
        with _connect(address, patience) as client:
            yield client
        return
    with (
        # what a lost scheduler or worker comes to is raised from here; Dask's client would print tracebacks as well
        _silence("distributed.client"),
        _connect(address, patience) as client,
    ):
        limit = 0 if cluster is None else cluster.memory_limit
        members = Membership(client, address, patience, limit)
        _members[client] = members
        if cluster is not None and find_scheduler(cluster):
            _expected_threads[client] = cluster.workers
        try:
            members.start()
            yield client
        except (Exception, CancelledError) as error:
            explained = members.explain(error)
            if explained is error:
                raise
            raise explained from error
        finally:
            members.stop()


def _connect(address: str, patience: float) -> Any:
    """Connect to a scheduler, trying again while it does not answer; `Membership` waits for its workers."""
    give_up = time.monotonic() + patience
    while True:
        started = time.monotonic()
        timeout = min(CONNECT_SECONDS, max(0.1, give_up - started))
        try:
            return start_client(address, timeout, find_security(address))
        except OSError as error:
            # a refused connection, a name that does not resolve, keys that do not fit
            if time.monotonic() >= give_up:
                raise ClusterError(
                    f"cluster.address = {address!r}: no Dask scheduler answers ({error}) for {patience:g} seconds "
                    "([cluster] patience); start one, or leave the address empty"
                ) from error
        except Exception as error:
            # a protocol that there is not, a port that is missing
            raise ConfigError(
                f"cluster.address = {address!r}: no Dask scheduler answers ({error}); "
                "correct it, or leave the address empty"
            ) from error
        warnings.warn(
            f"no Dask scheduler answers at {address}: trying for up to {patience:g} seconds ([cluster] patience)",
            ClusterWarning,
            stacklevel=2,
        )
        time.sleep(max(0.0, min(1.0 - (time.monotonic() - started), give_up - time.monotonic())))


def find_memory(client: Client, memory_limit: int = 0) -> ClusterMemory:
    """Memory of a client and of its workers.

    Parameters
    ----------
    client
        Dask client; None is this thread alone.
    memory_limit
        Bytes that the data of each worker may take, or of this process where it does the work itself; 0 takes what
        they say they have.
    """
    if client is None:
        return ClusterMemory.here(memory_limit)
    if isinstance(client, LateClient):
        client = client.connect()
    if client.scheduler.address.startswith("inproc"):
        return ClusterMemory.here(memory_limit, count_threads(client))
    if client not in _members:
        # a client of the caller's: asked once, and not watched
        _members[client] = Membership(client, client.scheduler.address, PATIENCE, memory_limit)
    return _members[client].read_memory()


class LateClient:
    """A Dask client that connects when it is first used: for work that may turn out to be done already.

    Parameters
    ----------
    connect
        Gives the client.
    """

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect, self._client = connect, None
        self._required: list[Requirement] = []

    def check_when_connected(self, requirement: Requirement) -> None:
        """Do `check_workers` once there are workers to ask."""
        self._required.append(requirement)

    def connect(self) -> Client:
        """The client itself."""
        if self._client is None:
            self._client = self._connect()
            for requirement in self._required:
                check_workers(self._client, requirement)
        return self._client

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connect(), name)


def check_workers(client: Client, requirement: Requirement) -> None:
    """Check that every worker of a client can do what is required; without a client there is nothing to check.

    Parameters
    ----------
    client
        Dask client, or None.
    requirement
        Such as a `pmflib.store.objects.addresses.StoreAccess`: stores must be on storage that all workers share.

    Raises
    ------
    ConfigError
        If one cannot. A `LateClient` raises it when it connects.

    Notes
    -----
    Workers that join a client of `open_client` later are checked as well.
    """
    if client is None:
        return
    if isinstance(client, LateClient):
        client.check_when_connected(requirement)
        return
    if client in _members:
        _members[client].require(requirement)
        return
    requirement.refuse_unable(client.run(requirement.find_obstacle))


@contextmanager
def measure_workers(
    client: Client, note: Callable[[Iterable[ProcessUsage]], None]
) -> Iterator[None]:
    """Measure what the processes of workers use while the context lasts.

    Parameters
    ----------
    client
        Client of `open_client`. Where there is none, or workers are threads of this process, it measures nothing.
    note
        Called at the end with the usage of each worker that was there all the time; not called after an error.
    """
    if client is None or client.scheduler.address.startswith("inproc"):
        yield
        return
    before = _ask_workers(client, ProcessUsage.begin)
    yield
    after = _ask_workers(client, ProcessUsage.read)
    note([after[each].since(before[each]) for each in sorted(before.keys() & after.keys())])


def _ask_workers(client: Client, function: Callable[[], ProcessUsage]) -> dict[str, ProcessUsage]:
    """Answer of each worker, by its address; none where one does not answer in time: what is asked is of no weight."""
    found: dict[str, ProcessUsage] = {}

    def ask() -> None:
        with suppress(Exception):
            found.update(client.run(function, on_error="ignore"))

    thread = Thread(target=ask, name="pmf-usage", daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    return dict(found)


def count_threads(client: Client) -> int:
    """Number of threads that work for a client, or that are expected where workers come later; 1 without one."""
    if client is None:
        return 1
    if isinstance(client, LateClient):
        client = client.connect()
    n_threads: int = sum(client.nthreads().values())
    return max(1, _expected_threads.get(client, 0), n_threads)


@contextmanager
def connect_briefly(address: str, seconds: float, security: Any = None) -> Iterator[Client]:
    """Connect to a Dask scheduler without patience, and without a word of Dask's own in the log.

    Parameters and errors are those of `start_client`.
    """
    with (
        quieten("distributed", logging.CRITICAL),
        start_client(address, seconds, security) as client,
    ):
        yield client
