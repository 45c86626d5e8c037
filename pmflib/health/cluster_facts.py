"""What a Dask cluster is like: its scheduler, its workers, what they see, and whether they reach each other.

Nothing here is a task: the scheduler and the workers are asked beside their work, in threads of their own, so that a
cluster that is busy, or a folder that never comes back, holds up neither a run nor what is asked.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from pmflib.health.certificate_dates import CertificateFacts, find_certificates
from pmflib.health.deadlines import call_together
from pmflib.health.process_facts import find_versions, is_loopback
from pmflib.health.store_probe import (
    find_there,
    name_probe,
    read_probe,
    remove_probe,
    write_probe,
)
from pmflib.health.worker_view import Places, WorkerView, look_from_worker
from pmflib.kernels.kernel_facts import KernelFacts, find_kernel_facts
from pmflib.running.brief_clients import connect_briefly, fetch_result
from pmflib.running.clients import Client

CONNECT_SECONDS = 5.0
"""Longest wait for the scheduler to answer at all."""
QUICK_SECONDS = 10.0
"""Longest wait for what takes no time: clocks, versions, a fetched result."""
LOOK_SECONDS = 30.0
"""Longest wait for workers to look at the places of a pipeline."""
KERNEL_SECONDS = 120.0
"""Longest wait for workers to load their kernels; where none is on disk yet, all of them compile at the same time."""
PAYLOAD = b"pmf"
"""What one worker fetches from another."""


@dataclass(frozen=True)
class WorkerFacts:
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
    kernels: KernelFacts | str = "not asked"
    skew: float | str = "not asked"
    unseen: str = ""
    unfetched: str = ""
    fetched_from: str = ""


@dataclass(frozen=True)
class ClusterFacts:
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
        Why the dashboard cannot be reached from here; empty where it can.
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
    certificates: tuple[CertificateFacts, ...] = ()
    workers: tuple[WorkerFacts, ...] = field(default=())
    unwritten: str = ""


def find_cluster_facts(address: str, places: Places, security: Any = None) -> ClusterFacts:
    """Ask a scheduler and its workers, with a limit on every wait.

    Parameters
    ----------
    address
        Address of the scheduler.
    places
        What workers are to look at: the store, or where it will be; the name of the probe file is replaced.
    security
        Keys of its connections; None for those that Dask is configured with.
    """
    if error := try_port(address):
        return ClusterFacts(address, error)
    try:
        with connect_briefly(address, CONNECT_SECONDS, security) as client:
            return _ask_cluster(client, address, places)
    except Exception as error:
        # a refused handshake, keys that do not fit, another protocol or version, a scheduler that stops meanwhile
        return ClusterFacts(address, f"{type(error).__name__}: {error}")


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


def _ask_cluster(client: Client, address: str, places: Places) -> ClusterFacts:
    info = _list_workers(client)
    names = sorted(info["workers"])
    host = urlsplit(client.scheduler.address).hostname or ""
    port = info.get("services", {}).get("dashboard")
    dashboard = f"http://{host}:{port}/status" if port else ""
    security = client.security
    first = call_together(
        {
            "versions": partial(client.run_on_scheduler, find_versions),
            "skew": partial(_measure_skew, partial(client.run_on_scheduler, time.time)),
            "dashboard": partial(try_port, f"{host}:{port}" if port else "inproc://"),
            "certificates": partial(find_certificates, client.scheduler.address, security),
            "workers": partial(_ask_workers, client, info["workers"], names, places),
        },
        # every wait below has a limit of its own
        4 * QUICK_SECONDS + KERNEL_SECONDS,
    )
    if isinstance(first["workers"], BaseException):
        return ClusterFacts(address, f"its workers cannot be asked: {_say(first['workers'])}")
    workers, unwritten = first["workers"]
    versions, skew = first["versions"], first["skew"]
    return ClusterFacts(
        address=address,
        versions=versions if isinstance(versions, dict) else _say(versions),
        skew=skew if isinstance(skew, float) else _say(skew),
        dashboard=dashboard,
        dashboard_error=_unless_error(first["dashboard"], "no answer"),
        certificates=_unless_error(first["certificates"], ()),
        workers=workers,
        unwritten=unwritten,
    )


def _list_workers(client: Client) -> dict[str, Any]:
    """What the scheduler says of itself and of all its workers."""
    info: dict[str, Any] = client.scheduler_info(n_workers=-1)
    return info


def _ask_workers(
    client: Client, known: Mapping[str, Mapping[str, Any]], names: Sequence[str], places: Places
) -> tuple[tuple[WorkerFacts, ...], str]:
    """Facts of all workers, and why the client could write no probe file."""
    if not names:
        return (), ""
    probe, own = name_probe(), {name: name_probe() for name in names}
    place, unwritten = places.store, ""
    try:
        place = find_there(places.store)
    except OSError as error:
        unwritten = error.strerror or str(error)
    places = Places(place, probe, places.sources, places.suffixes, places.skip_empty)
    try:
        skews = call_together(
            {name: partial(_measure_worker_skew, client, name) for name in names}, QUICK_SECONDS
        )
        try:
            write_probe(place, probe)
        except OSError as error:
            unwritten = error.strerror or str(error)
        questions: dict[tuple[str, str], Callable[[], Any]] = {}
        # one that does not say what time it is says nothing else, and one that is paused is sent nothing
        awake = [name for name in names if isinstance(skews[name], float)]
        ring = [name for name in awake if known[name].get("status") == "running"]
        for name in awake:
            questions[name, "view"] = partial(
                _ask, client, name, LOOK_SECONDS, look_from_worker, places, own[name]
            )
            questions[name, "kernels"] = partial(
                _ask, client, name, KERNEL_SECONDS, find_kernel_facts
            )
        for name in ring if len(ring) > 1 else ():
            questions[name, "fetch"] = partial(_fetch, client, name, _next_of(name, ring))
        found = call_together(questions, KERNEL_SECONDS + QUICK_SECONDS)
        return tuple(
            _gather_worker(name, known[name], found, skews[name], places.store, ring)
            for name in names
        ), unwritten
    finally:
        for name in (probe, *own.values()):
            remove_probe(places.store, name)


def _gather_worker(
    name: str,
    known: Mapping[str, Any],
    found: Mapping[tuple[str, str], Any],
    skew: Any,
    store: str,
    ring: Sequence[str],
) -> WorkerFacts:
    view, kernels = (found.get((name, what), skew) for what in ("view", "kernels"))
    fetched = found.get((name, "fetch"))
    written = view.written if isinstance(view, WorkerView) else ""
    return WorkerFacts(
        address=name,
        host=str(known.get("host", "")),
        status=str(known.get("status", "")),
        n_threads=int(known["nthreads"]),
        memory_limit=int(known.get("memory_limit") or 0),
        view=view if isinstance(view, WorkerView) else _say(view),
        kernels=kernels if isinstance(kernels, KernelFacts) else _say(kernels),
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


def _measure_worker_skew(client: Client, name: str) -> float:
    return _measure_skew(lambda: client.run(time.time, workers=[name])[name])


def _fetch(client: Client, name: str, other: str) -> str:
    """Have a worker fetch a small result from another; say why it could not, or ""."""
    held = client.scatter([PAYLOAD], workers=[other], hash=False)[0]
    said = client.run(_fetch_from, other, held.key, workers=[name])[name]
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


def is_open(address: str) -> bool:
    """Whether an address is neither encrypted nor of this machine alone."""
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    return parts.scheme in ("tcp", "ws") and not is_loopback(parts.hostname or "")
