"""Dask clients: connecting with retries, monitoring workers, and querying their threads and memory."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any
from weakref import WeakKeyDictionary

from pmflib.base.errors import ClusterError, ClusterWarning, ConfigError
from pmflib.base.process_usage import ProcessUsage
from pmflib.cluster.membership import Membership, Requirement
from pmflib.cluster.memory import ClusterMemory
from pmflib.cluster.workers import ClusterOptions, find_scheduler, find_security, quieten

Client = Any
"""A Dask client, or None to work in this thread."""

PATIENCE = 30.0
"""Default time, in seconds, to wait for a scheduler and its first worker."""
CONNECT_SECONDS = 10.0
"""Time limit of one attempt to connect to a scheduler, seconds."""
ANSWER_SECONDS = 5.0
"""Time limit for workers to report their usage before and after a stage, seconds."""

_members: WeakKeyDictionary[Any, Membership] = WeakKeyDictionary()
"""Monitors of the open clients."""
_expected_threads: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""Expected number of threads per client, if more workers may join."""


def start_client(address: str, seconds: float, security: Any = None) -> Any:
    """Connect to a Dask scheduler.

    Parameters
    ----------
    address
        Address of the scheduler.
    seconds
        Maximum time to wait for it.
    security
        Keys for its connections; None uses those in Dask's configuration.

    Returns
    -------
    The client, which is not set as default. The caller must close it.

    Raises
    ------
    OSError
        If the scheduler does not respond, or the keys do not match.
    ValueError
        If the address is invalid.

    Notes
    -----
    Dask leaves a client that failed to connect to Python's garbage collector. The collector may run while another
    client or cluster starts its thread; closing the failed client then needs a lock held by the other, and both wait
    forever. Failed clients are therefore closed here.
    """
    from distributed import Client

    client = Client.__new__(Client)
    try:
        client.__init__(address, set_as_default=False, timeout=seconds, security=security)
    except BaseException:
        with suppress(Exception):
            client.close()
            # a client closed by Dask itself keeps its thread
            client._loop_runner.stop()
        raise
    return client


@contextmanager
def _silence(name: str) -> Iterator[None]:
    """Silence a logger; unlike levels, contexts of several threads may end in any order."""

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
    """Connect to a Dask scheduler, wait for its first worker, and monitor its workers within the context.

    If the scheduler or its workers are lost or killed, errors are raised from here with a remedy.
    `pmflib.cluster.membership.Membership` waits for workers and monitors them.

    Parameters
    ----------
    address
        Address from `use_workers`.
    cluster
        Section ``cluster`` of the configuration: waiting time and memory limit of workers. By default half a minute.

    Yields
    ------
    The client; None if the address is empty.

    Raises
    ------
    ConfigError
        If the address is invalid, or a worker is incompatible: another version of this package, or a folder it cannot
        read.
    ClusterError
        If no scheduler responds, or it has no worker, within the patience.
    LostSchedulerError
        If the scheduler is lost during use.
    MemoryPlanError
        If a worker that joins has less memory than planned, or workers were killed for exceeding their limit.
    """
    if not address:
        yield None
        return
    from asyncio import CancelledError

    patience = PATIENCE if cluster is None else cluster.patience
    if address.startswith("inproc"):
        # threads of this process start and end with it
        with _connect(address, patience) as client:
            yield client
        return
    with (
        # errors from a lost scheduler or worker are raised from here; Dask's client would also print tracebacks
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
    """Connect to a scheduler, retrying until it responds; `Membership` waits for its workers."""
    give_up = time.monotonic() + patience
    while True:
        started = time.monotonic()
        timeout = min(CONNECT_SECONDS, max(0.1, give_up - started))
        try:
            return start_client(address, timeout, find_security(address))
        except OSError as error:
            # a refused connection, an unresolvable name, or wrong keys
            if time.monotonic() >= give_up:
                raise ClusterError(
                    f"cluster.address = {address!r}: no Dask scheduler answers ({error}) for {patience:g} seconds "
                    "([cluster] patience); start one, or leave the address empty"
                ) from error
        except Exception as error:
            # an unknown protocol or a missing port
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
    """Return the memory of a client and of its workers.

    Parameters
    ----------
    client
        Dask client; None for this thread.
    memory_limit
        Memory limit for the data of each worker, or of this process if it does the work itself, bytes; 0 uses the
        limits that they report.
    """
    if client is None:
        return ClusterMemory.here(memory_limit)
    if isinstance(client, LateClient):
        client = client.connect()
    if client.scheduler.address.startswith("inproc"):
        return ClusterMemory.here(memory_limit, count_threads(client))
    if client not in _members:
        # a client of the caller: queried once, and not monitored
        _members[client] = Membership(client, client.scheduler.address, PATIENCE, memory_limit)
    return _members[client].read_memory()


class LateClient:
    """A Dask client that connects on first use, for work that may already be done.

    Parameters
    ----------
    connect
        Returns the client.
    """

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect, self._client = connect, None
        self._required: list[Requirement] = []

    def check_when_connected(self, requirement: Requirement) -> None:
        """Run `check_workers` once the client is connected."""
        self._required.append(requirement)

    def connect(self) -> Client:
        """Return the client, connecting if necessary."""
        if self._client is None:
            self._client = self._connect()
            for requirement in self._required:
                check_workers(self._client, requirement)
        return self._client

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connect(), name)


def check_workers(client: Client, requirement: Requirement) -> None:
    """Check that every worker of a client meets a requirement; without a client there is nothing to check.

    Parameters
    ----------
    client
        Dask client, or None.
    requirement
        Requirement, such as `pmflib.store.objects.addresses.StoreAccess`: stores must be on storage shared by all
        workers.

    Raises
    ------
    ConfigError
        If a worker does not meet it. A `LateClient` raises the error when it connects.

    Notes
    -----
    Workers that join a client from `open_client` later are also checked.
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
    """Measure the resource usage of worker processes within the context.

    Parameters
    ----------
    client
        Client from `open_client`. Nothing is measured without a client, or if workers are threads of this process.
    note
        Called at the end with the usage of each worker present throughout; not called after an error.
    """
    if client is None or client.scheduler.address.startswith("inproc"):
        yield
        return
    before = _ask_workers(client, ProcessUsage.begin)
    yield
    after = _ask_workers(client, ProcessUsage.read)
    note([after[each].since(before[each]) for each in sorted(before.keys() & after.keys())])


def _ask_workers(client: Client, function: Callable[[], ProcessUsage]) -> dict[str, ProcessUsage]:
    """Return the answer of each worker by address; omitted for workers that do not respond in time."""
    found: dict[str, ProcessUsage] = {}

    def ask() -> None:
        with suppress(Exception):
            found.update(client.run(function, on_error="ignore"))

    thread = Thread(target=ask, name="pmf-usage", daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    return dict(found)


def count_threads(client: Client) -> int:
    """Return the number of threads of a client, or the expected number if workers join later; 1 without a client."""
    if client is None:
        return 1
    if isinstance(client, LateClient):
        client = client.connect()
    n_threads: int = sum(client.nthreads().values())
    return max(1, _expected_threads.get(client, 0), n_threads)


@contextmanager
def connect_briefly(address: str, seconds: float, security: Any = None) -> Iterator[Client]:
    """Connect to a Dask scheduler without retries, and without log messages from Dask.

    For parameters and errors see `start_client`.
    """
    with (
        quieten("distributed", logging.CRITICAL),
        start_client(address, seconds, security) as client,
    ):
        yield client
