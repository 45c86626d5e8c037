"""Dask workers: where the work of a run is done, and workers that start when a stage first needs them."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from pmflib.core.errors import ConfigError
from pmflib.core.machine import count_processors, make_private_folder
from pmflib.core.texts import mask_secrets

_END_QUIETLY = """
import logging, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
logging.getLogger("distributed.worker").setLevel(logging.CRITICAL)
"""
"""Program that each worker process runs first. Ctrl-C in a terminal is sent to all processes, but it is the run that
ends its workers, and the tasks that are cancelled then need no warning. The errors of tasks are raised where the run
waits for them; workers would print them as well, with a traceback, and texts of data raw."""

LAST_PORT = 65535
"""Largest number of a port of TCP."""

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

_securities: dict[str, object] = {}
"""Keys of the schedulers that this process has started and that listen on a port, by address."""


class ClusterOptions(Protocol):
    """Where work runs, as section ``cluster`` of the configuration has it."""

    @property
    def address(self) -> str:
        """Address of a scheduler that runs already; empty starts workers on this machine."""

    @property
    def workers(self) -> int:
        """Number of workers, one thread each; 0 is one for every processor."""

    @property
    def processes(self) -> bool:
        """Whether workers are processes of their own rather than threads."""

    @property
    def memory_limit(self) -> int:
        """Bytes that the data of each worker may take; 0 takes what they say they have."""

    @property
    def patience(self) -> float:
        """How long to wait for a scheduler and for a worker, seconds."""


def find_scheduler(cluster: ClusterOptions) -> str:
    """Address of the scheduler that runs already; empty if none is named.

    Raises
    ------
    ConfigError
        If its port is none: to wait for it would not help.
    """
    address = os.environ.get("PMF_DASK_ADDRESS") or cluster.address
    port = re.search(r":(\d+)/?$", address)
    if port and not (len(port[1]) <= 5 and 0 < int(port[1]) <= LAST_PORT):
        raise ConfigError(
            f"the scheduler's address {mask_secrets(address)[:200]!r} has port "
            f"{port[1][:9]}, and ports are 1 to {LAST_PORT}; correct cluster.address, or PMF_DASK_ADDRESS"
        )
    return address


@contextmanager
def start_workers(cluster: ClusterOptions) -> Iterator[str]:
    """Run workers for as long as the context lasts.

    Parameters
    ----------
    cluster
        Section ``cluster`` of the configuration. PMF_DASK_ADDRESS, and then its address, name a scheduler that runs
        already; without either, workers are started on this machine, on loopback, one thread each.

    Yields
    ------
    Address of the scheduler. Threads are reached in memory alone; processes on loopback, where connections need a key
    that is drawn here and passed on to them: a client of this process knows it, other users of the machine do not.
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
        quieten("distributed", logging.WARNING),
        quieten("distributed.worker", logging.CRITICAL),
        quieten("distributed.nanny", logging.WARNING),
        # of a worker that an interruption reaches while it connects
        quieten("distributed.comm", logging.ERROR),
        make_private_folder() as scratch,
        # Dask's own would have a name that anybody can guess, and take first; a scheduler reads the option alone
        dask.config.set(_KEEP_MEMORY | _SERVE_NO_PAGES | {"temporary-directory": scratch}),
        LocalCluster(
            n_workers=n if cluster.processes else 1,
            threads_per_worker=1 if cluster.processes else n,
            processes=cluster.processes,
            host="127.0.0.1" if cluster.processes else None,
            # port 0 and not None, which still means the default port
            dashboard_address="127.0.0.1:0",
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

    cluster: ClusterOptions
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
def share_workers(cluster: ClusterOptions, *, alone: bool = False) -> Iterator[str]:
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
def use_workers(cluster: ClusterOptions) -> Iterator[str]:
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


def find_security(address: str) -> Any:
    """Keys of a scheduler that this process has started; None of any other, or where it needs none."""
    return _securities.get(address)


@contextmanager
def quieten(name: str, level: int) -> Iterator[None]:
    """Let a logger, and those below it that have no level of their own, report nothing below a level."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
