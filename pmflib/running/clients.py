"""Dask workers and clients: where work runs, how many threads there are, how much memory they may use."""

from __future__ import annotations

import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pmflib.errors import ClusterError, ClusterWarning, ConfigError
from pmflib.objects.addresses import find_obstacle, refuse_unseen
from pmflib.running.dask_clients import start_client
from pmflib.running.membership import Membership
from pmflib.running.processors import count_processors
from pmflib.running.worker_memory import ClusterMemory

if TYPE_CHECKING:
    from pmflib.config import ClusterConfig

Client = Any
"""A Dask client, or None to work in this thread alone."""

_END_QUIETLY = """
import logging, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
logging.getLogger("distributed.worker").setLevel(logging.CRITICAL)
"""
"""Program that each worker process runs first. Ctrl-C in a terminal is sent to all processes, but it is the run that
ends its workers, and the tasks that are cancelled then need no warning. The errors of tasks are raised where the run
waits for them; workers would print them as well, with a traceback, and texts of data raw."""

_KEEP_MEMORY = {
    f"distributed.nanny.pre-spawn-environ.MALLOC_{name}_THRESHOLD_": size
    for name, size in (("TRIM", 64 << 20), ("MMAP", 32 << 20))
}
"""Options of Dask: the environment in which worker processes start. By default freed memory returns to the system at
once; to map the memory of blocks of a few MiB again and again would take half as long as to read them."""

_SERVE_NO_PAGES: dict[str, list[str]] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Options of Dask: where its processes would serve a dashboard and pages of figures, there are none."""

PATIENCE = 30.0
"""Seconds that a client waits for a scheduler and its first worker where nothing is configured."""
CONNECT_SECONDS = 10.0
"""Seconds of one attempt to connect to a scheduler."""

_securities: dict[str, Any] = {}
"""Keys of the schedulers that this process has started and that listen on a port, by address."""
_members: WeakKeyDictionary[Any, Membership] = WeakKeyDictionary()
"""Workers of the clients that are open."""
_expected_threads: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""Threads that are expected to work for a client, where more may come than there are."""


@contextmanager
def start_workers(cluster: ClusterConfig) -> Iterator[str]:
    """Run workers for as long as the context lasts.

    Parameters
    ----------
    cluster
        Section ``cluster`` of the configuration. PMF_DASK_ADDRESS, and then its address, name a scheduler that runs
        already; without either, workers are started on this machine, on loopback, one thread each.

    Yields
    ------
    Address of the scheduler. Threads are reached in memory alone; processes on loopback, where connections need a key
    that is drawn here and passed on to them: `open_client` of this process knows it, other users of the machine do not.
    """
    if address := find_scheduler(cluster):
        yield address
        return
    import dask
    from distributed import LocalCluster
    from distributed.security import Security

    n = cluster.workers or count_processors()
    options = {"preload": _END_QUIETLY} if cluster.processes else {}
    with (
        _quiet("distributed", logging.WARNING),
        _quiet("distributed.worker", logging.CRITICAL),
        _quiet("distributed.nanny", logging.WARNING),
        # of a worker that an interruption reaches while it connects
        _quiet("distributed.comm", logging.ERROR),
        # Dask's own would have a name that anybody can guess, and take first
        tempfile.TemporaryDirectory(prefix="pmf-", ignore_cleanup_errors=True) as scratch,
        dask.config.set(_KEEP_MEMORY | _SERVE_NO_PAGES),
        LocalCluster(
            n_workers=n if cluster.processes else 1,
            threads_per_worker=1 if cluster.processes else n,
            processes=cluster.processes,
            host="127.0.0.1" if cluster.processes else None,
            # port 0 and not None, which still means the default port
            dashboard_address="127.0.0.1:0",
            local_directory=scratch,
            scheduler_kwargs={"dashboard": False},
            security=Security.temporary() if cluster.processes else None,
            **options,
        ) as local,
    ):
        # a worker that is a thread would serve its pages to the network
        for node in (local.scheduler, *local.workers.values()):
            if (pages := getattr(node, "http_server", None)) is not None:
                local.loop.add_callback(pages.stop)
        _securities[local.scheduler_address] = local.security
        try:
            yield local.scheduler_address
        finally:
            del _securities[local.scheduler_address]
            # a worker that is at work when the run is interrupted is killed in the end, which is nothing to report
            logging.getLogger("distributed.nanny").setLevel(logging.ERROR)


def find_scheduler(cluster: ClusterConfig) -> str:
    """Address of the scheduler that runs already; empty if none is named."""
    return os.environ.get("PMF_DASK_ADDRESS") or cluster.address


@dataclass
class _RunWorkers:
    """Workers of a run, which start when a stage first needs them.

    Parameters
    ----------
    cluster
        Section ``cluster`` of the configuration.
    stack
        Context of the run: workers end with it.
    alone
        Whether stages work in this thread, and no workers start.
    address
        Address of the scheduler; empty before they have started.
    """

    cluster: ClusterConfig
    stack: ExitStack
    alone: bool
    address: str = ""

    def start(self) -> str:
        """Start the workers unless they are there; return the address of their scheduler, empty where there is none."""
        if not self.address and not self.alone:
            self.address = self.stack.enter_context(start_workers(self.cluster))
        return self.address


_run_workers: ContextVar[_RunWorkers | None] = ContextVar("run_workers", default=None)


@contextmanager
def share_workers(cluster: ClusterConfig, *, alone: bool = False) -> Iterator[str]:
    """Let the stages of a run share workers. They start when a stage first needs them, and end with the context.

    A run that finds everything done never starts any.

    Parameters
    ----------
    cluster
        Section ``cluster`` of the configuration, as for `start_workers`.
    alone
        Whether stages work in this thread, and no workers start: the same results, to the bit. A scheduler that is
        named is used all the same.

    Yields
    ------
    Address of a scheduler that runs already; empty where workers start when `use_workers` is first called.
    """
    with ExitStack() as stack:
        before = _run_workers.set(
            _RunWorkers(cluster, stack, alone and not find_scheduler(cluster))
        )
        try:
            yield find_scheduler(cluster)
        finally:
            _run_workers.reset(before)


def is_alone() -> bool:
    """Whether the run under way works in this thread, and starts no workers."""
    shared = _run_workers.get()
    return shared is not None and shared.alone


@contextmanager
def use_workers(cluster: ClusterConfig) -> Iterator[str]:
    """Use the workers of the run under way; outside `share_workers`, some that are started for this context alone.

    Parameters
    ----------
    cluster
        As for `start_workers`.

    Yields
    ------
    Address of the scheduler; empty where the run works in this thread alone.
    """
    if (shared := _run_workers.get()) is not None:
        yield shared.start()
        return
    with start_workers(cluster) as address:
        yield address


@contextmanager
def _quiet(name: str, level: int) -> Iterator[None]:
    """Let a logger, and those below it that have no level of their own, report nothing below a level."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)


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
def open_client(address: str, cluster: ClusterConfig | None = None) -> Iterator[Client]:
    """Connect to a Dask scheduler, wait until it has a worker, and watch which workers it has while the context lasts.

    Errors that mean that the scheduler or its workers have gone, or were killed, are raised from here as what a user
    can do about them.

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
    """Connect to a scheduler, trying again while it does not answer."""
    give_up = time.monotonic() + patience
    while True:
        started = time.monotonic()
        timeout = min(CONNECT_SECONDS, max(0.1, give_up - started))
        try:
            return start_client(address, timeout, _securities.get(address))
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
        self._folders: list[str] = []

    def check_when_connected(self, folder: str) -> None:
        """Do `check_workers_see` once there are workers to ask."""
        self._folders.append(folder)

    def connect(self) -> Client:
        """The client itself."""
        if self._client is None:
            self._client = self._connect()
            for folder in self._folders:
                check_workers_see(self._client, folder)
        return self._client

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connect(), name)


def check_workers_see(client: Client, folder: str) -> None:
    """Check that every worker of a client can open a store; without a client there is nothing to check.

    Parameters
    ----------
    client
        Dask client, or None.
    folder
        Folder of the store, absolute, or its URL.

    Raises
    ------
    ConfigError
        If one cannot: stores must be on storage that all workers share. A `LateClient` raises it when it connects.

    Notes
    -----
    Workers that join a client of `open_client` later are checked as well.
    """
    if client is None:
        return
    if isinstance(client, LateClient):
        client.check_when_connected(folder)
        return
    if client in _members:
        _members[client].check_folder(folder)
        return
    refuse_unseen(folder, client.run(find_obstacle, folder))


def count_threads(client: Client) -> int:
    """Number of threads that work for a client, or that are expected where workers come later; 1 without one."""
    if client is None:
        return 1
    if isinstance(client, LateClient):
        client = client.connect()
    n_threads: int = sum(client.nthreads().values())
    return max(1, _expected_threads.get(client, 0), n_threads)


def list_addresses(client: Client) -> list[str]:
    """Addresses of the workers of a client, in the order in which they are numbered."""
    return list(client.nthreads())
