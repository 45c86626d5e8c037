"""Starting Dask workers: on demand for a run, or at the address of an existing scheduler."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from pmflib.base.errors import ConfigError
from pmflib.base.machine import count_processors, make_private_folder
from pmflib.base.texts import mask_secrets

_END_QUIETLY = """
import logging, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
logging.getLogger("distributed.worker").setLevel(logging.CRITICAL)
"""
"""Program that each worker process runs first. Ctrl-C in a terminal reaches all processes, but the run itself ends its
workers, so warnings about cancelled tasks are suppressed. Errors of tasks are raised where the run waits for them;
workers would also print them, with a traceback and unescaped data.
"""

LAST_PORT = 65535
"""Largest TCP port number."""

_KEEP_MEMORY = {
    f"distributed.nanny.pre-spawn-environ.MALLOC_{name}_THRESHOLD_": size
    for name, size in (("TRIM", 64 << 20), ("MMAP", 32 << 20))
}
"""Dask options: environment of worker processes. By default freed memory is returned to the system at once, and mapping
blocks of a few MiB again would take half as long as reading them.
"""

_SERVE_NO_PAGES: dict[str, list[str]] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Dask options: serve no dashboard or other web pages."""

_securities: dict[str, object] = {}
"""Keys of schedulers started by this process that listen on a port, by address."""


class ClusterOptions(Protocol):
    """Where work runs, as in section ``cluster`` of the configuration."""

    @property
    def address(self) -> str:
        """Address of an existing scheduler; empty starts workers on this machine."""

    @property
    def workers(self) -> int:
        """Number of workers with one thread each; 0 for one per processor."""

    @property
    def processes(self) -> bool:
        """Whether workers are processes rather than threads."""

    @property
    def memory_limit(self) -> int:
        """Memory limit for the data of each worker, bytes; 0 uses the limits that they report."""

    @property
    def patience(self) -> float:
        """Maximum time to wait for a scheduler and for a worker, seconds."""


def find_scheduler(cluster: ClusterOptions) -> str:
    """Return the address of an existing scheduler; empty if none is configured.

    Raises
    ------
    ConfigError
        If its port is invalid, because waiting for it would not help.
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
    """Run workers within the context.

    Parameters
    ----------
    cluster
        Section ``cluster`` of the configuration. PMF_DASK_ADDRESS, or else its address, names an existing scheduler;
        without either, workers with one thread each are started on this machine, on the loopback interface.

    Yields
    ------
    Address of the scheduler. Threads are reached in memory; processes over loopback connections with a key that is
    generated here and passed on to them. Clients of this process know the key, other users of the machine do not.
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
        # from a worker that is interrupted while it connects
        quieten("distributed.comm", logging.ERROR),
        make_private_folder() as scratch,
        # Dask's default name could be guessed and taken first; only the scheduler reads this option
        dask.config.set(_KEEP_MEMORY | _SERVE_NO_PAGES | {"temporary-directory": scratch}),
        LocalCluster(
            n_workers=n if cluster.processes else 1,
            threads_per_worker=1 if cluster.processes else n,
            processes=cluster.processes,
            host="127.0.0.1" if cluster.processes else None,
            # port 0 rather than None, which still means the default port
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            security=Security.temporary() if cluster.processes else None,
            **options,
        ) as local,
    ):
        # a worker in a thread would serve its pages to the network
        for node in (local.scheduler, *local.workers.values()):
            if (pages := getattr(node, "http_server", None)) is not None:
                local.loop.add_callback(pages.stop)
        _securities[local.scheduler_address] = local.security
        try:
            yield local.scheduler_address
        finally:
            del _securities[local.scheduler_address]
            # a worker that is busy when the run is interrupted is killed in the end, which need not be reported
            logging.getLogger("distributed.nanny").setLevel(logging.ERROR)


@dataclass
class _RunWorkers:
    """Workers of a run, started when a stage first needs them.

    Parameters
    ----------
    cluster
        Section ``cluster`` of the configuration.
    stack
        Context of the run, with which workers end.
    alone
        Whether stages work in this thread, without workers.
    address
        Address of the scheduler; empty until workers have started.
    """

    cluster: ClusterOptions
    stack: ExitStack
    alone: bool
    address: str = ""

    def start(self) -> str:
        """Start the workers if necessary; return the address of their scheduler, or "" if there is none."""
        if not self.address and not self.alone:
            self.address = self.stack.enter_context(start_workers(self.cluster))
        return self.address


_run_workers: ContextVar[_RunWorkers | None] = ContextVar("run_workers", default=None)


@contextmanager
def share_workers(cluster: ClusterOptions, *, alone: bool = False) -> Iterator[str]:
    """Share workers between the stages of a run; they start on first use and end with the context.

    No workers are started if all stages are already done.

    Parameters
    ----------
    cluster
        Section ``cluster`` of the configuration, as for `start_workers`.
    alone
        Whether stages work in this thread without workers, with equal bits. A configured scheduler is used
        nevertheless.

    Yields
    ------
    Address of an existing scheduler; empty if workers start on the first call of `use_workers`.
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
    """Return whether the current run works in this thread without workers."""
    shared = _run_workers.get()
    return shared is not None and shared.alone


@contextmanager
def use_workers(cluster: ClusterOptions) -> Iterator[str]:
    """Use the workers of the current run; outside `share_workers`, start workers for this context only.

    Parameters
    ----------
    cluster
        As for `start_workers`.

    Yields
    ------
    Address of the scheduler; empty if the run works in this thread.
    """
    if (shared := _run_workers.get()) is not None:
        yield shared.start()
        return
    with start_workers(cluster) as address:
        yield address


def find_security(address: str) -> Any:
    """Return the keys of a scheduler started by this process; None for other schedulers, or if no keys are needed."""
    return _securities.get(address)


@contextmanager
def quieten(name: str, level: int) -> Iterator[None]:
    """Silence messages below a level from a logger and from its children without a level of their own."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
