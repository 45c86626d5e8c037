"""Health checks of what a run talks to: Dask workers, their scheduler and the Prefect server."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from pmflib.base.errors import ClusterError, MemoryPlanError, PmfError
from pmflib.base.machine import MachineMemory, count_processors, find_memory_limit
from pmflib.base.texts import mask_secrets
from pmflib.cluster.clients import Client
from pmflib.cluster.memory import ClusterMemory, PlanWorker, format_bytes, read_workers
from pmflib.cluster.versions import (
    AGREEING_PARTS,
    SAME_EVERYWHERE,
    Difference,
    compare_versions,
    find_versions,
)
from pmflib.counts.kernels.readiness import KernelState, find_kernel_state
from pmflib.counts.stored_pairs import choose_n_runs, plan_counting
from pmflib.em.memory import plan_em
from pmflib_flows.pipeline_flow import import_quickly, is_server_configured
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.health import HealthLine
from pmflib_tasks.stage import load_schema

KERNEL_SECONDS = 110.0
"""Time limit for the kernels of workers, which compile them if no process has done so, seconds."""


CONNECT_SECONDS = 5.0
"""Time limit for a connection to the scheduler or to the Prefect server, seconds."""


ASK_SECONDS = 30.0
"""Time limit for the answers of workers, seconds."""


SILENT_SECONDS = 30.0
"""Age of a worker's last heartbeat at which the worker counts as silent, seconds."""


MAX_SKEW = 10.0
"""Largest accepted clock difference, seconds; a busy machine may report its clock late."""


SCHEDULER_PACKAGES = ("python", "pmflib", "dask", "distributed", "numpy", "cloudpickle", "msgpack")
"""Packages whose versions matter on a scheduler, which reads tasks but no data."""


SHOWN = 3
"""Number of names that a line lists before it abbreviates."""


def check_versions(client: Client) -> HealthLine:
    """Compare the versions of packages here, on the scheduler and on the workers."""
    ours = find_versions()
    shown = [f"{name} {ours[name]}" for name in ("pmflib", "numpy", "numba", "distributed")]
    said = f"Python {ours['python']}, {', '.join(shown)}"
    if client is None:
        return HealthLine("ok", "versions", said)
    answer = client.get_versions(packages=[name for name in AGREEING_PARTS if name != "python"])
    client_packages = _read_packages(answer["client"])
    differing: dict[Difference, list[str]] = {}
    scheduler = _read_packages(answer["scheduler"])
    for difference in compare_versions(client_packages, scheduler, SCHEDULER_PACKAGES):
        differing.setdefault(difference, []).append("scheduler")
    for worker, described in answer["workers"].items():
        for difference in compare_versions(client_packages, _read_packages(described)):
            differing.setdefault(difference, []).append(worker)
    if not differing:
        return HealthLine(
            "ok", "versions", f"{said}; the same on scheduler and {len(answer['workers'])} workers"
        )
    found = "; ".join(each.describe(_list(where)) for each, where in differing.items())
    if any(each.is_breaking for each in differing):
        return HealthLine("FAIL", "versions", found, SAME_EVERYWHERE, "infrastructure")
    return HealthLine("warn", "versions", found, SAME_EVERYWHERE)


def _read_packages(described: Mapping[str, Any]) -> dict[str, str]:
    """Return versions by package as reported by Dask; empty for a package that is not installed."""
    return {name: version or "" for name, version in described["packages"].items()}


def check_kernels(client: Client) -> HealthLine:
    """Check that vector code compiles and counts correctly, and that compiled code is kept, here and on workers."""
    states = {"here": find_kernel_state()} | ask_workers(
        client, find_kernel_state, seconds=KERNEL_SECONDS
    )
    known = {name: each for name, each in states.items() if isinstance(each, KernelState)}
    if plain := [name for name, each in known.items() if each.is_plain]:
        said = f"PMF_PLAIN_KERNELS is set: {_list(plain)}; slower, with the same results"
        return HealthLine("warn", "kernels", said, "unset it")
    if broken := [name for name in states if name not in known or not known[name].works]:
        said = f"vector code does not work: {_list(broken)}; slower, with the same results"
        return HealthLine("warn", "kernels", said, "install the lock file there")
    if unkept := [name for name, each in known.items() if not each.folder]:
        said = f"no folder for compiled code: {_list(unkept)}; every process compiles for seconds"
        remedy = "set NUMBA_CACHE_DIR to a folder that only this user can write"
        return HealthLine("warn", "kernels", said, remedy)
    vectors = sorted({each.vectors or "no vectors" for each in known.values()})
    folder = known["here"].folder
    said = f"vector code for {', '.join(vectors)}, kept in {folder}"
    return HealthLine("ok", "kernels", said)


def check_prefect() -> HealthLine:
    """Check that the configured Prefect server is healthy and has the version of the client."""
    none = HealthLine("ok", "Prefect", "no server is configured; runs do not need one")
    if not is_server_configured():
        return none
    with import_quickly():
        import prefect
        from prefect.client.orchestration import get_client
        from prefect.settings import get_current_settings
    url = get_current_settings().api.url
    if not url:
        # a client without an address would start a server of its own
        return none
    try:
        settings = {"timeout": CONNECT_SECONDS}
        with get_client(sync_client=True, httpx_settings=settings) as client:
            client.request("GET", "/health").raise_for_status()
            version = str(client.request("GET", "/admin/version").json())
    except Exception as error:
        # no connection, a password that is missing, an answer of another version
        said = f"{url} does not answer: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
        remedy = "start it, correct PREFECT_API_URL or PREFECT_API_AUTH_STRING, or unset it to run without a server"
        return HealthLine("FAIL", "Prefect", mask_secrets(said), remedy, "infrastructure")
    said = mask_secrets(f"{url} answers, version {version}")
    if version == prefect.__version__:
        if _is_open(url):
            remedy = "use HTTPS or a closed network"
            return HealthLine("warn", "Prefect", f"{said}, without encryption", remedy)
        return HealthLine("ok", "Prefect", said)
    said, remedy = f"{said}; the client has {prefect.__version__}", "install the same version"
    if version.split(".")[0] != prefect.__version__.split(".")[0]:
        return HealthLine("FAIL", "Prefect", said, remedy, "infrastructure")
    return HealthLine("warn", "Prefect", said, remedy)


def check_memory(config: PipelineConfig, client: Client) -> HealthLine:
    """Compare the memory of this process and of the workers with the plans of counting and EM."""
    limit = config.cluster.memory_limit
    if client is None:
        memory = ClusterMemory.here(limit, config.cluster.workers or count_processors())
    else:
        known = client.scheduler_info(n_workers=-1)["workers"]
        machines = {
            name: each
            for name, each in ask_workers(client, MachineMemory.read).items()
            if isinstance(each, MachineMemory)
        }
        workers = read_workers(known, machines, limit)
        if not workers:
            return HealthLine("ok", "memory", f"{format_bytes(find_memory_limit())} for data here")
        memory = ClusterMemory(tuple(workers), find_memory_limit(), is_shared=False)
    least = min(worker.spare for worker in memory.workers)
    said = f"{format_bytes(least)} for the data of each worker"
    try:
        plans = list_plans(config, sum(worker.n_threads for worker in memory.workers))
    except (PmfError, OSError):
        # the schema has a line of its own
        return HealthLine("ok", "memory", said)
    try:
        for plan_worker in plans:
            memory.check(plan_worker)
    except MemoryPlanError as error:
        remedy = "more memory (cluster.memory_limit, dask worker --memory-limit) or fewer threads"
        return HealthLine("FAIL", "memory", str(error), remedy, "memory")
    most = max((plan(memory.n_threads) for plan in plans), key=lambda plan: plan.needed)
    return HealthLine(
        "ok", "memory", f"{said}; {most.stage} needs most, {format_bytes(most.needed)}"
    )


def list_plans(config: PipelineConfig, n_threads: int) -> list[PlanWorker]:
    """List the memory plans of counting and, if the rank is configured, of EM.

    Parameters
    ----------
    config
        Configuration of the pipeline.
    n_threads
        Threads of all workers together, at least 1.

    Raises
    ------
    SchemaError, OSError
        If the schema cannot be read.
    """
    n_levels, rank = load_schema(config).n_levels, config.model.rank
    n_runs = choose_n_runs(config.store.folds, n_threads)
    plans: list[PlanWorker] = [lambda n: plan_counting(n_levels, n, n_runs)]
    if isinstance(rank, int):
        plans.append(lambda n: plan_em(n_levels, rank, n, config.em.members))
    return plans


def check_workers(client: Client) -> HealthLine:
    """Check that the scheduler has workers, and that all of them are running and report regularly."""
    info = client.scheduler_info(n_workers=-1)
    address, workers = info["address"], info["workers"]
    if not workers:
        said = f"0 workers at {address}: a run would wait for them"
        remedy = f"start some: dask worker {address}"
        return HealthLine("FAIL", "workers", said, remedy, "infrastructure")
    now = client.run_on_scheduler(time.time)
    troubled = [
        f"{name} ({each['status']}, last heartbeat {now - each['last_seen']:.0f} s ago)"
        for name, each in workers.items()
        if each["status"] != "running" or now - each["last_seen"] > SILENT_SECONDS
    ]
    if troubled:
        remedy = "see their logs; paused workers are short of memory"
        return HealthLine("warn", "workers", f"not working: {_list(troubled)}", remedy)
    n_threads = sum(each["nthreads"] for each in workers.values())
    n_bytes = sum(each["memory_limit"] or 0 for each in workers.values())
    said = f"{len(workers)} at {address}, all running; {n_threads} threads, {format_bytes(n_bytes)}"
    return HealthLine("ok", "workers", said)


def check_clocks(client: Client) -> HealthLine:
    """Compare the clocks of scheduler and workers with the clock of this machine."""
    before = time.time()
    clocks = {"scheduler": client.run_on_scheduler(time.time)}
    clocks |= client.run(time.time)
    here = (before + time.time()) / 2
    skews = {name: clock - here for name, clock in clocks.items()}
    wrong = [f"{name} ({skew:+.0f} s)" for name, skew in skews.items() if abs(skew) > MAX_SKEW]
    if wrong:
        remedy = "synchronise the clocks (NTP, chrony)"
        return HealthLine("warn", "clocks", f"differ from this machine: {_list(wrong)}", remedy)
    largest = max(map(abs, skews.values()))
    return HealthLine("ok", "clocks", f"within {max(largest, 0.1):.1f} s of this machine")


def check_encryption(client: Client) -> HealthLine:
    """Check that connections beyond this machine are encrypted."""
    info = client.scheduler_info(n_workers=-1)
    addresses = [client.scheduler.address, *info["workers"]]
    if plain := [address for address in addresses if _is_open(address)]:
        said = f"none at {_list(plain)}: whoever reaches the port reads the data and runs code"
        remedy = "use tls:// with your own keys, or a closed network"
        return HealthLine("warn", "encryption", said, remedy)
    encrypted = all(address.startswith("tls://") for address in addresses)
    said = "TLS" if encrypted else "none; all connections stay on this machine"
    return HealthLine("ok", "encryption", said)


def report_scheduler(address: str, error: Exception) -> HealthLine:
    """Make the line for a scheduler that does not answer."""
    said = f"{address} does not answer: {type(error).__name__}: {error}"
    remedy = "start it, open its port, or correct PMF_DASK_ADDRESS or cluster.address"
    return HealthLine("FAIL", "scheduler", mask_secrets(said), remedy, "infrastructure")


def _is_open(address: str) -> bool:
    """Return whether an address is neither encrypted nor on loopback."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    local = host in ("localhost", "::1") or host.startswith("127.")
    return parts.scheme in ("tcp", "ws", "http") and not local


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def ask_workers(
    client: Client, function: Callable[..., Any], *arguments: Any, seconds: float = ASK_SECONDS
) -> dict[str, Any]:
    """Call a function on each worker; returns results or exceptions by worker, empty without a client.

    Raises
    ------
    ClusterError
        If a worker does not answer in time.
    """
    found: dict[str, Any] = {}
    if client is None:
        return found

    def ask() -> None:
        # a scheduler that stops meanwhile has a line of its own
        with suppress(Exception):
            found.update(client.run(_call_in_thread, function, *arguments, on_error="return"))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise ClusterError(f"a worker does not answer within {seconds:g} s")
    return found


async def _call_in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function outside a worker's event loop, so that a hanging disk does not block the loop."""
    return await asyncio.to_thread(function, *arguments)
