"""What a Dask cluster is like: its scheduler, its workers, what they see, and whether they reach each other.

Nothing here is a task: the scheduler and the workers are asked beside their work, in threads of their own, so that a
cluster that is busy, or a folder that never comes back, holds up neither a run nor what is asked.
"""

from __future__ import annotations

import asyncio
import html
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import urlopen

from pmflib.cluster.clients import Client, connect_briefly, fetch_result
from pmflib.cluster.versions import find_versions
from pmflib.kernels.readiness import KernelState, find_kernel_state
from pmflib_tasks.operations.doctor.encryption import CertificateState, find_certificates
from pmflib_tasks.operations.doctor.probes import (
    find_there,
    name_probe,
    read_probe,
    remove_probe,
    write_probe,
)
from pmflib_tasks.operations.doctor.storage import PipelinePaths, WorkerView, look_from_worker

CONNECT_SECONDS = 5.0
"""Longest wait for the scheduler to answer at all."""
QUICK_SECONDS = 10.0
"""Longest wait for what takes no time: clocks, versions, a fetched result."""
LOOK_SECONDS = 30.0
"""Longest wait for workers to look at the paths of a pipeline."""
KERNEL_SECONDS = 120.0
"""Longest wait for workers to load their kernels; where none is on disk yet, all of them compile at the same time."""
MAX_PAGE_BYTES = 100_000
"""Most bytes that are read of a page: that of the dashboard has a tenth of them."""
PAYLOAD = b"pmf"
"""What one worker fetches from another."""
K = TypeVar("K", bound=Hashable)
MAX_THREADS = 512
"""Most calls that are under way at a time: they wait for others, and need no processor."""


@dataclass(frozen=True)
class WorkerState:
    """One worker.

    Parameters
    ----------
    address, host
        Where it listens, and the machine as the scheduler knows it.
    status
        "running", "paused", ... as the scheduler says.
    n_threads, memory_limit
        Threads, and bytes that its process may take; 0 for no limit.
    view
        What it sees, or why it did not say.
    kernels
        Its kernels, or why it did not say.
    skew
        How far its clock is ahead of the client's, seconds; or why it did not say.
    unseen
        Why the client could not read what it wrote to the store; empty where it could, or nothing was written.
    unfetched
        Why it could not fetch a result from another worker; empty where it could.
    fetched_from
        Address of that worker; empty where none was asked: there is no other, or it is paused.
    """

    address: str
    host: str
    status: str
    n_threads: int
    memory_limit: int
    view: WorkerView | str = "not asked"
    kernels: KernelState | str = "not asked"
    skew: float | str = "not asked"
    unseen: str = ""
    unfetched: str = ""
    fetched_from: str = ""


@dataclass(frozen=True)
class ClusterState:
    """A scheduler and its workers.

    Parameters
    ----------
    address
        Address of the scheduler.
    error
        Why it does not answer; empty where it does.
    versions
        Versions of the scheduler, by package; or why it did not say.
    skew
        How far its clock is ahead of the client's, seconds; or why it did not say.
    dashboard
        Address of its dashboard; empty where it serves none.
    dashboard_error
        Why the dashboard cannot be opened from here; empty where it can.
    certificates
        What the keys of its connections are signed by, and until when; none where they are not encrypted.
    workers
        Its workers, sorted by address.
    unwritten
        Why the client could write no probe file for the workers to read; empty where it could.
    """

    address: str
    error: str = ""
    versions: dict[str, str] | str = "not asked"
    skew: float | str = "not asked"
    dashboard: str = ""
    dashboard_error: str = ""
    certificates: tuple[CertificateState, ...] = ()
    workers: tuple[WorkerState, ...] = field(default=())
    unwritten: str = ""


def find_cluster_state(address: str, paths: PipelinePaths, security: Any = None) -> ClusterState:
    """Ask a scheduler and its workers, with a limit on every wait.

    Parameters
    ----------
    address
        Address of the scheduler.
    paths
        What workers are to look at: the store, or where it will be; the name of the probe file is replaced.
    security
        Keys of its connections; None for those that Dask is configured with.
    """
    if error := try_port(address):
        return ClusterState(address, error)
    try:
        with connect_briefly(address, CONNECT_SECONDS, security) as client:
            return _ask_cluster(client, address, paths)
    except Exception as error:
        # a refused handshake, keys that do not fit, another protocol or version, a scheduler that stops meanwhile
        return ClusterState(address, f"{type(error).__name__}: {error}")


def try_port(address: str) -> str:
    """Try whether anything listens at an address; say why not, or "".

    Parameters
    ----------
    address
        As ``tcp://host:port``, ``tls://host:port`` or ``host:port``; others are not tried.
    """
    try:
        parts = urlsplit(address if "://" in address else f"tcp://{address}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme not in ("tcp", "tls"):
        return ""
    if host is None or port is None:
        return "the address has no host, or no port"
    try:
        socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def try_page(address: str) -> str:
    """Open the page of a dashboard; say why it cannot be read, or "".

    Parameters
    ----------
    address
        Address of the page, ``http://host:port/status``; an empty one is not opened.

    Notes
    -----
    Without bokeh a scheduler answers at the same port, with a page that says what it lacks.
    """
    if not address:
        return ""
    try:
        with urlopen(address, timeout=CONNECT_SECONDS) as answer:
            page = answer.read(MAX_PAGE_BYTES).decode("utf-8", "replace")
    except OSError as error:
        reason = getattr(error, "reason", error)
        return str(getattr(reason, "strerror", None) or reason)
    if lack := re.search(r"Dask needs (bokeh[^<]*?) for the dashboard", page):
        return f"the scheduler has no {html.unescape(lack[1])}"
    return "" if "bokeh" in page else "the page is none of a dashboard of Dask"


def _ask_cluster(client: Client, address: str, paths: PipelinePaths) -> ClusterState:
    info = client.scheduler_info(n_workers=-1)
    known = [
        WorkerState(
            address=name,
            host=str(each.get("host", "")),
            status=str(each.get("status", "")),
            n_threads=int(each["nthreads"]),
            memory_limit=int(each.get("memory_limit") or 0),
        )
        for name, each in sorted(info["workers"].items())
    ]
    scratch = {name: str(each.get("local_directory", "")) for name, each in info["workers"].items()}
    host = urlsplit(client.scheduler.address).hostname or ""
    port = info.get("services", {}).get("dashboard")
    dashboard = f"http://{host}:{port}/status" if port else ""
    security = client.security
    first = call_together(
        {
            "versions": partial(client.run_on_scheduler, find_versions),
            "skew": partial(_measure_skew, partial(client.run_on_scheduler, time.time)),
            "dashboard": partial(try_page, dashboard),
            "certificates": partial(find_certificates, client.scheduler.address, security),
            "workers": partial(_ask_workers, client, known, paths, scratch),
        },
        # every wait below has a limit of its own
        4 * QUICK_SECONDS + KERNEL_SECONDS,
    )
    if isinstance(first["workers"], BaseException):
        return ClusterState(address, f"its workers cannot be asked: {_say(first['workers'])}")
    workers, unwritten = first["workers"]
    versions, skew = first["versions"], first["skew"]
    return ClusterState(
        address=address,
        versions=versions if isinstance(versions, dict) else _say(versions),
        skew=skew if isinstance(skew, float) else _say(skew),
        dashboard=dashboard,
        dashboard_error=_unless_error(first["dashboard"], "no answer"),
        certificates=_unless_error(first["certificates"], ()),
        workers=workers,
        unwritten=unwritten,
    )


def _ask_workers(
    client: Client, known: Sequence[WorkerState], paths: PipelinePaths, scratch: Mapping[str, str]
) -> tuple[tuple[WorkerState, ...], str]:
    """States of all workers, of which the scheduler knows some, and why the client could write no probe file."""
    if not known:
        return (), ""
    names = [worker.address for worker in known]

    def ask_time(name: str) -> float:
        return float(client.run(time.time, workers=[name])[name])

    probe, own = name_probe(), {name: name_probe() for name in names}
    store, unwritten = paths.store, ""
    try:
        store = find_there(paths.store)
    except OSError as error:
        unwritten = error.strerror or str(error)
    paths = PipelinePaths(store, probe, paths.sources, paths.suffixes, paths.skip_empty)
    try:
        skews = call_together(
            {name: partial(_measure_skew, partial(ask_time, name)) for name in names}, QUICK_SECONDS
        )
        try:
            write_probe(store, probe)
        except OSError as error:
            unwritten = error.strerror or str(error)
        questions: dict[tuple[str, str], Callable[[], Any]] = {}
        # one that does not say what time it is says nothing else, and one that is paused is sent nothing
        awake = [worker for worker in known if isinstance(skews[worker.address], float)]
        ring = [worker.address for worker in awake if worker.status == "running"]
        for worker in awake:
            name = worker.address
            questions[name, "view"] = partial(
                _ask, client, name, LOOK_SECONDS, look_from_worker, paths, own[name], scratch[name]
            )
            questions[name, "kernels"] = partial(
                _ask, client, name, KERNEL_SECONDS, find_kernel_state
            )
        for name in ring if len(ring) > 1 else ():
            questions[name, "fetch"] = partial(_fetch, client, name, _next_of(name, ring))
        found = call_together(questions, KERNEL_SECONDS + QUICK_SECONDS)
        return tuple(
            _gather_worker(worker, found, skews[worker.address], paths.store, ring)
            for worker in known
        ), unwritten
    finally:
        for name in (probe, *own.values()):
            remove_probe(paths.store, name)


def _gather_worker(
    known: WorkerState,
    found: Mapping[tuple[str, str], Any],
    skew: Any,
    store: str,
    ring: Sequence[str],
) -> WorkerState:
    """State of a worker: to what the scheduler knows, its answers are added."""
    name = known.address
    view, kernels = (found.get((name, what), skew) for what in ("view", "kernels"))
    fetched = found.get((name, "fetch"))
    written = view.written if isinstance(view, WorkerView) else ""
    return replace(
        known,
        view=view if isinstance(view, WorkerView) else _say(view),
        kernels=kernels if isinstance(kernels, KernelState) else _say(kernels),
        skew=skew if isinstance(skew, float) else _say(skew),
        unseen=read_probe(store, written) if written else "",
        unfetched="" if fetched is None else _say(fetched),
        fetched_from="" if fetched is None else _next_of(name, ring),
    )


def _next_of(name: str, names: Sequence[str]) -> str:
    return names[(names.index(name) + 1) % len(names)]


def _ask(
    client: Client, name: str, seconds: float, function: Callable[..., Any], *args: Any
) -> Any:
    """What a function gives on one worker, or what went wrong as a text."""
    return client.run(_answer_within, function, args, seconds, workers=[name])[name]


async def _answer_within(function: Callable[..., Any], args: Sequence[Any], seconds: float) -> Any:
    """Call a function in a thread of the worker; give its result, or what went wrong as a text.

    The worker goes on meanwhile, and is not held up by a call that never comes back.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any) -> None:
        if not done.done():
            done.set_result(result)

    def work() -> None:
        try:
            result = function(*args)
        except BaseException as error:
            result = _say(error)
        loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=work, daemon=True, name="health").start()
    try:
        return await asyncio.wait_for(done, seconds)
    except TimeoutError:
        return f"no answer in {seconds:g} s"


def _measure_skew(ask: Callable[[], float]) -> float:
    """How far another clock is ahead of this one, seconds, to within half the time of the question."""
    before = time.time()
    there = ask()
    return there - (before + time.time()) / 2


def _fetch(client: Client, name: str, other: str) -> str:
    """Have a worker fetch a small result from another; say why it could not, or ""."""
    payload = client.scatter([PAYLOAD], workers=[other], hash=False)[0]
    said = client.run(_fetch_from, other, payload.key, workers=[name])[name]
    return str(said)


async def _fetch_from(other: str, key: str, dask_worker: Any) -> str:
    try:
        result = await fetch_result(dask_worker, other, key, QUICK_SECONDS)
    except TimeoutError:
        return f"no answer in {QUICK_SECONDS:g} s"
    except Exception as error:
        return _say(error)
    return "" if result in (None, PAYLOAD) else "another result came"


def _unless_error(value: Any, otherwise: Any) -> Any:
    return otherwise if isinstance(value, BaseException) else value


def _say(error: Any) -> str:
    if isinstance(error, TimeoutError) and str(error):
        return str(error)
    # Dask wraps the errors of workers in plain ones, whose text names the class already
    plain = isinstance(error, str) or type(error) is Exception
    return str(error) if plain else f"{type(error).__name__}: {error}"


def call_together(jobs: Mapping[K, Callable[[], Any]], seconds: float) -> dict[K, Any]:
    """Call functions at the same time, ``MAX_THREADS`` at most, and wait for all of them until a deadline.

    Parameters
    ----------
    jobs
        Functions without arguments, by name.
    seconds
        Time for all of them together, above 0.

    Returns
    -------
    By name, in the order of the jobs, what each gave, or the exception that it raised; a TimeoutError for what had not
    come back in time. Such a call goes on in a thread that ends with the process.
    """
    waiting: queue.SimpleQueue[tuple[K, Callable[[], Any]]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[K, Any]] = queue.SimpleQueue()
    for name, job in jobs.items():
        # threads have no settings of the context that they are started in
        waiting.put((name, partial(copy_context().run, job)))

    def work() -> None:
        while True:
            try:
                name, job = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((name, job()))
            except BaseException as error:
                done.put((name, error))

    for _ in range(min(MAX_THREADS, len(jobs))):
        # a daemon: what never comes back must not keep the process alive
        threading.Thread(target=work, daemon=True, name="health").start()
    deadline = time.monotonic() + seconds
    late = TimeoutError(f"no answer in {seconds:g} s")
    found: dict[K, Any] = dict.fromkeys(jobs, late)
    for _ in jobs:
        try:
            name, result = done.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        found[name] = result
    return found
