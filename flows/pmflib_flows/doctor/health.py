"""Health checks of a setup before a run: configuration, data, store, machine, Dask workers and Prefect server.

Each check is a function that returns one `HealthLine`. `examine` runs all checks at the same time, each in its own
thread and with a common time limit, so that a worker or a disk that hangs does not block the other checks.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from pmflib.base.errors import ClusterError, ConfigError, MemoryPlanError, PmfError
from pmflib.base.machine import (
    MachineMemory,
    count_processors,
    find_memory_limit,
    find_temporary_danger,
)
from pmflib.base.texts import mask_secrets
from pmflib.cluster.clients import Client, connect_briefly
from pmflib.cluster.memory import (
    ClusterMemory,
    PlanWorker,
    format_bytes,
    read_workers,
)
from pmflib.cluster.versions import (
    AGREEING_PARTS,
    SAME_EVERYWHERE,
    Difference,
    compare_versions,
    find_versions,
)
from pmflib.cluster.workers import find_scheduler
from pmflib.counts.kernels.readiness import KernelState, find_kernel_state
from pmflib.counts.stored_pairs import choose_n_runs, plan_counting
from pmflib.em.memory import plan_em
from pmflib.ingest.sources import find_sources, open_source
from pmflib.store.artefacts import Store
from pmflib.store.objects.addresses import is_bucket, open_objects
from pmflib.store.objects.interface import ObjectChangedError, Objects
from pmflib.store.run_records import list_records
from pmflib_flows.doctor.columns import check_columns
from pmflib_flows.pipeline_flow import import_quickly, is_server_configured
from pmflib_tasks.config import PipelineConfig, load_config
from pmflib_tasks.features import list_offers
from pmflib_tasks.health import Check, HealthLine
from pmflib_tasks.stage import load_schema

SECONDS = 120.0
"""Time limit for all checks together, seconds."""
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
FULL_BYTES, LOW_BYTES = 100 << 20, 1 << 30
"""Free bytes below which a disk counts as full, and as nearly full."""
SCHEDULER_PACKAGES = ("python", "pmflib", "dask", "distributed", "numpy", "cloudpickle", "msgpack")
"""Packages whose versions matter on a scheduler, which reads tasks but no data."""
SHOWN = 3
"""Number of names that a line lists before it abbreviates."""


def examine(config_file: Path, address: str) -> list[HealthLine]:
    """Examine a pipeline and everything that a run of it needs. Nothing is changed.

    Parameters
    ----------
    config_file
        Configuration of the pipeline, ``pipeline.toml``.
    address
        Address of the Dask scheduler; empty for the one that a run would use.

    Returns
    -------
    One line per check, in a fixed order.

    Raises
    ------
    ConfigError
        If the scheduler's address has no valid port.
    """
    try:
        config = load_config(config_file)
    except ConfigError as error:
        said = "; ".join(str(error).splitlines())
        line = HealthLine("FAIL", "configuration", said, "correct it", "configuration")
        return [line, check_versions(None)]
    read = f"{config_file}: pipeline {config.name!r}, rank {config.model.rank}"
    address = address or find_scheduler(config.cluster)
    with ExitStack() as stack:
        client, unanswered = None, []
        if address:
            try:
                client = stack.enter_context(connect_briefly(address, CONNECT_SECONDS))
            except Exception as error:
                # a closed port, keys that do not fit, another protocol or version
                unanswered = [_report_scheduler(address, error)]
        lines = run_checks(list_checks(config, client, has_memory=not unanswered))
    return [HealthLine("ok", "configuration", read), *lines, *unanswered]


def list_checks(config: PipelineConfig, client: Client, *, has_memory: bool) -> list[Check]:
    """List the checks of a pipeline, with those of features: see `Feature.health`.

    Parameters
    ----------
    config
        Configuration of the pipeline.
    client
        Dask client; None without a scheduler.
    has_memory
        Whether it is known which processes would do the work, so that their memory can be checked.
    """
    checks = [
        Check(
            "schema",
            "source",
            "draft one with `pmf infer`, or correct schema.file",
            partial(check_schema, config),
        ),
        Check(
            "sources",
            "source",
            "correct source.path, or put the files there; every worker needs the same path and credentials",
            partial(check_sources, config, client),
        ),
        Check(
            "store",
            "store",
            "correct permissions or credentials, or set store.path to another location",
            partial(check_store, config, client),
        ),
        Check(
            "columns",
            "source",
            "correct the files, or source and schema: `pmf check` reads all rows",
            partial(check_columns, config),
        ),
        Check("store disk", "store", "correct its permissions", partial(check_store_disk, config)),
        Check("temporary files", "configuration", "set TMPDIR", check_temporary_folder),
        Check("versions", "infrastructure", SAME_EVERYWHERE, partial(check_versions, client)),
        Check("kernels", "infrastructure", SAME_EVERYWHERE, partial(check_kernels, client)),
        Check("Prefect", "infrastructure", "see its log", check_prefect),
    ]
    checks += [each for health in list_offers("health") for each in health(config)]
    if has_memory:
        memory = partial(check_memory, config, client)
        remedy = "more memory (cluster.memory_limit, dask worker --memory-limit) or fewer threads"
        checks.append(Check("memory", "memory", remedy, memory))
    if client is not None:
        remedy = "see the log of the scheduler and of its workers"
        checks += [
            Check("workers", "infrastructure", remedy, partial(check_workers, client)),
            Check("clocks", "infrastructure", remedy, partial(check_clocks, client)),
            Check("encryption", "infrastructure", remedy, partial(check_encryption, client)),
        ]
    return checks


def run_checks(checks: Sequence[Check], seconds: float = SECONDS) -> list[HealthLine]:
    """Run checks at the same time.

    Parameters
    ----------
    checks
        The checks.
    seconds
        Time limit for all of them together, above 0. A check that is still running then fails.

    Returns
    -------
    One line per check, in the same order.
    """
    found: dict[str, HealthLine] = {}

    def run(check: Check) -> None:
        try:
            found[check.what] = check.function()
        except Exception as error:
            found[check.what] = check.fail(error)

    threads = []
    for check in checks:
        # a daemon, so that a check that never returns does not keep the process alive
        thread = threading.Thread(target=copy_context().run, args=(run, check), daemon=True)
        thread.start()
        threads.append(thread)
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = TimeoutError(f"no answer within {seconds:g} s: a worker, a server or a disk hangs")
    return [found.get(check.what) or check.fail(late) for check in checks]


def check_schema(config: PipelineConfig) -> HealthLine:
    """Check that the schema can be read and has the target."""
    schema = load_schema(config)
    counted = f"{schema.n_variables:,} variables, {schema.n_levels:,} levels"
    return HealthLine("ok", "schema", counted)


def check_sources(config: PipelineConfig, client: Client) -> HealthLine:
    """Check that the raw files can be read here, and that every worker finds the same files."""
    source = config.source
    wanted = config.source_paths, source.suffixes, source.on_empty_file == "skip"
    n_files, n_bytes = measure_sources(*wanted)
    said = f"{n_files:,} file{'' if n_files == 1 else 's'}, {format_bytes(n_bytes)}"
    for worker, seen in _ask(client, measure_sources, *wanted).items():
        if seen != (n_files, n_bytes):
            error = mask_secrets(str(seen)) if isinstance(seen, Exception) else "other files"
            remedy = "put the files under the same path everywhere; each worker needs the credentials of a bucket"
            return HealthLine(
                "FAIL", "sources", f"{said} here, at worker {worker}: {error}", remedy, "source"
            )
    return HealthLine("ok", "sources", said)


def measure_sources(
    paths: tuple[str, ...], suffixes: tuple[str, ...], skip_empty: bool
) -> tuple[int, int]:
    """Count raw files and their bytes as this process sees them, and read one byte of the first file.

    Parameters
    ----------
    paths, suffixes, skip_empty
        As for `find_sources`.

    Raises
    ------
    SourceError
        If there are no files, or one cannot be read.
    """
    found = find_sources(paths, suffixes, skip_empty=skip_empty)
    with open_source(found[0], unpack=False) as stream:
        stream.read(1)
    return len(found), sum(each.size for each in found)


def check_store(config: PipelineConfig, client: Client) -> HealthLine:
    """Check that the store can be written and published to, that its records can be read, and that workers share it.

    A probe object is created and deleted. If the store does not exist yet, the nearest existing parent folder is tried.
    """
    path = config.resolve(config.store.path)
    location = path if is_bucket(path) else str(find_existing_folder(path))
    objects, name = open_objects(location), f".pmf-probe-{uuid.uuid4().hex}"
    try:
        objects.create(name, b"first")
        lacking = find_lacking_conditions(objects, name)
        unseen = {
            worker: said
            for worker, said in _ask(client, see_object, location, name).items()
            if said
        }
    finally:
        with suppress(OSError, PmfError):
            objects.delete([name])
    if lacking:
        remedy = "put the store on a local disk, on NFS, or in a bucket"
        said = f"{location}: publication needs more than this storage does: {lacking}"
        return HealthLine("FAIL", "store", said, remedy, "store")
    if unseen:
        worker, said = next(iter(unseen.items()))
        said = f"{len(unseen)} workers do not share {location}, such as {worker}: {said}"
        remedy = "mount one folder under one path everywhere; each worker needs the credentials of a bucket"
        return HealthLine("FAIL", "store", said, remedy, "store")
    if not is_bucket(path) and not Path(path, "manifest").is_dir():
        return HealthLine(
            "ok", "store", f"{path} is not there yet; the first run creates it in {location}"
        )
    n_runs = len(list_records(Store(path), config.name))
    return HealthLine("ok", "store", f"{path} can be read and written; {n_runs:,} recorded runs")


def find_existing_folder(path: str) -> Path:
    """Find a folder or its nearest existing parent.

    Raises
    ------
    NotADirectoryError
        If that is a file.
    """
    there = Path(path).absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise NotADirectoryError(f"{there} is a file, not a folder")
    return there


def find_lacking_conditions(objects: Objects, name: str) -> str:
    """Return which condition of publication a storage does not meet; empty if it meets all of them.

    Parameters
    ----------
    objects
        The storage.
    name
        Name of a probe object that exists.
    """
    try:
        objects.create(name, b"second")
        return "it creates an object over an existing one (If-None-Match)"
    except FileExistsError:
        pass
    tag = objects.read(name)[1]
    objects.replace(name, b"second", tag)
    try:
        objects.replace(name, b"third", tag)
        return "it replaces an object that has changed meanwhile (If-Match)"
    except ObjectChangedError:
        return ""


def see_object(location: str, name: str) -> str:
    """Return why this process cannot read an object; empty if it can.

    Parameters
    ----------
    location
        Folder, or address of a bucket.
    name
        Name of the object.
    """
    try:
        open_objects(location).read(name)
    except FileNotFoundError:
        return "another folder or bucket under the same address"
    except (OSError, PmfError) as error:
        return str(error)
    return ""


def check_store_disk(config: PipelineConfig) -> HealthLine:
    """Check the free space for the store; for a store in a bucket, that of its cache on this machine."""
    path = config.resolve(config.store.path)
    remedy = "free some space; `pmf gc` deletes what no kept run needs"
    if is_bucket(path):
        remedy = "free some space, or set PMF_MIRROR to a folder on another disk"
    folder = find_existing_folder(str(open_objects(path).find_root()))
    return _check_space("store disk", folder, remedy)


def check_temporary_folder() -> HealthLine:
    """Check that no other user can replace temporary files, and the free space for them."""
    remedy = "set TMPDIR to a folder of your own, with free space"
    if danger := find_temporary_danger():
        return HealthLine("FAIL", "temporary files", danger, remedy, "configuration")
    return _check_space("temporary files", Path(tempfile.gettempdir()), remedy)


def _check_space(what: str, folder: Path, remedy: str) -> HealthLine:
    free = psutil.disk_usage(str(folder)).free
    said = f"{format_bytes(free)} free at {folder}"
    if free < FULL_BYTES:
        return HealthLine("FAIL", what, said, remedy, "store")
    if free < LOW_BYTES:
        return HealthLine("warn", what, said, remedy)
    return HealthLine("ok", what, said)


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
    states = {"here": find_kernel_state()} | _ask(client, find_kernel_state, seconds=KERNEL_SECONDS)
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
            for name, each in _ask(client, MachineMemory.read).items()
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
    if rank != "auto":
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


def _report_scheduler(address: str, error: Exception) -> HealthLine:
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


def _ask(
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
