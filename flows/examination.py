"""The examination of a pipeline: facts in, lines out, in a fixed order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flows.health_facts import HealthFacts, gather_facts
from pmflib.config import PipelineConfig, load_config
from pmflib.errors import ConfigError
from pmflib.health.cluster_checks import (
    check_clocks,
    check_connections,
    check_dashboard,
    check_encryption,
    check_scheduler,
    check_workers,
)
from pmflib.health.cluster_facts import ClusterFacts, is_open
from pmflib.health.health_line import HealthLine, warn
from pmflib.health.machine_checks import (
    WorkerMachine,
    check_container,
    check_linear_algebra,
    check_memory,
    check_open_files,
    check_own_threads,
    check_threads,
    check_worker_memory,
)
from pmflib.health.memory_needs import list_plans
from pmflib.health.pipeline_checks import check_configuration, check_history, check_schema
from pmflib.health.process_facts import ProcessFacts, find_process_facts
from pmflib.health.server_checks import check_server
from pmflib.health.software_checks import check_encodings, check_kernels, check_versions
from pmflib.health.storage_checks import (
    MIRROR_REMEDY,
    check_disk,
    check_file_system,
    check_folder,
    check_sources,
    check_worker_places,
)
from pmflib.health.store_probe import FolderFacts, StoreFacts
from pmflib.health.worker_view import WorkerView
from pmflib.kernels.kernel_facts import KernelFacts
from pmflib.objects.addresses import is_bucket
from pmflib.running.clients import find_scheduler
from pmflib.running.worker_memory import ClusterMemory, PlanWorker, read_workers
from pmflib.schema import Schema


def examine(config_file: Path, address: str = "") -> list[HealthLine]:
    """Examine a pipeline, the processes that would work on it, and what they need.

    Parameters
    ----------
    config_file
        Configuration of the pipeline, ``pipeline.toml``.
    address
        Scheduler to ask; empty for the one that a run would use.

    Returns
    -------
    Lines in a fixed order, whatever is there and whatever is not.
    """
    try:
        config = load_config(config_file)
    except ConfigError as error:
        # all the rest follows from it, but for what is installed
        client = find_process_facts()
        return [
            check_configuration(error, str(config_file)),
            *check_versions(client.versions, None, {}),
            check_encodings({"client": client}),
        ]
    facts = gather_facts(config, config_file, address or find_scheduler(config.cluster))
    # the history of a store that cannot be used is no line of its own
    store_line = check_folder(facts.store)
    return [
        check_configuration(config, str(config_file)),
        *_check_places(facts),
        *_check_client(config, facts),
        *_check_cluster(config, facts),
        *check_server(facts.server),
        check_clocks(_list_skews(facts)),
        *([] if store_line.state == "FAIL" else check_history(facts.history)),
    ]


def _check_places(facts: HealthFacts) -> list[HealthLine]:
    """Lines on what the configuration names, as the client sees it."""
    lines = [check_schema(facts.schema), check_sources(facts.sources)]
    lines.append(check_folder(facts.store))
    if isinstance(facts.store, StoreFacts):
        folder = facts.store.folder
        if not folder.is_bucket:
            lines.append(check_file_system(folder))
            lines.append(check_disk("store disk", folder, facts.sources.n_bytes))
        elif facts.store.mirror is not None:
            needed = facts.sources.n_bytes
            lines.append(check_disk("mirror disk", facts.store.mirror, needed, MIRROR_REMEDY))
    if isinstance(facts.scratch, FolderFacts):
        lines.append(check_disk("temporary files", facts.scratch, 0))
    return lines


def _check_client(config: PipelineConfig, facts: HealthFacts) -> list[HealthLine]:
    """Lines on the client's machine, and on what is alike there and at workers."""
    client, cluster = facts.client, facts.cluster
    if not isinstance(client, ProcessFacts):
        return [warn("client", f"nothing is known of it: {client}", "run again")]
    views = {} if cluster is None else list_views(cluster)
    versions = {name: view.process.versions for name, view in views.items()}
    scheduler = None if cluster is None or cluster.error else cluster.versions
    machines = [] if cluster is None else list_machines(cluster, config.cluster.memory_limit)
    n_threads = config.cluster.workers or client.processors
    # of a scheduler's workers, the limit is theirs alone
    limit = config.cluster.memory_limit if cluster is None else 0
    lines = [
        *check_versions(
            client.versions,
            scheduler,
            versions,
            needs_obstore=is_bucket(config.store.path),
        ),
        check_memory(
            ClusterMemory.here(limit, n_threads),
            _list_plans(config, facts, n_threads),
            is_alone=cluster is None,
        ),
    ]
    if cluster is None:
        lines.append(check_own_threads(client, config.cluster.workers))
    kernels: dict[str, KernelFacts | str] = {
        "client": facts.kernels if isinstance(facts.kernels, KernelFacts) else str(facts.kernels)
    }
    if cluster is not None:
        # one that says nothing at all has a line of its own
        kernels |= {each.address: each.kernels for each in cluster.workers if each.address in views}
    return [
        *lines,
        *check_linear_algebra(client, machines),
        *check_kernels(kernels),
        check_encodings({"client": client} | {name: view.process for name, view in views.items()}),
        check_open_files(client, machines),
        check_container(client, machines),
    ]


def _check_cluster(config: PipelineConfig, facts: HealthFacts) -> list[HealthLine]:
    """Lines on scheduler and workers; none where a run works here."""
    cluster = facts.cluster
    if cluster is None:
        return []
    lines = [check_scheduler(cluster.address, cluster.error)]
    if cluster.error:
        return lines
    views, machines = list_views(cluster), list_machines(cluster, config.cluster.memory_limit)
    silent = {
        each.address: each.view for each in cluster.workers if not isinstance(each.view, WorkerView)
    }
    addresses = [cluster.address, *(each.address for each in cluster.workers)]
    n_threads = max(1, sum(each.n_threads for each in cluster.workers))
    unseen = {each.address: each.unseen for each in cluster.workers if each.address in views}
    unfetched = {
        f"{each.address} from {each.fetched_from}": each.unfetched
        for each in cluster.workers
        if each.unfetched
    }
    return [
        *lines,
        check_dashboard(cluster.dashboard, cluster.dashboard_error),
        *check_encryption(
            [each for each in addresses if is_open(each)],
            cluster.certificates,
            encrypted=cluster.address.startswith("tls://"),
        ),
        *check_workers(
            cluster.address, {each.address: each.status for each in cluster.workers}, silent
        ),
        *check_worker_memory(
            [each.memory for each in machines], _list_plans(config, facts, n_threads)
        ),
        *check_threads(machines),
        *check_worker_places(views, unseen, facts.sources, cluster.unwritten),
        *check_connections(unfetched, sum(bool(each.fetched_from) for each in cluster.workers)),
    ]


def list_views(cluster: ClusterFacts) -> dict[str, WorkerView]:
    """What workers see, by address, of those that said so."""
    return {
        each.address: each.view for each in cluster.workers if isinstance(each.view, WorkerView)
    }


def list_machines(cluster: ClusterFacts, memory_limit: int) -> list[WorkerMachine]:
    """What counts of workers for memory and threads, of those that said what they have.

    Parameters
    ----------
    cluster
        Scheduler and workers.
    memory_limit
        The option ``cluster.memory_limit``; 0 leaves it to the workers.
    """
    views = list_views(cluster)
    info = {
        each.address: {
            "nthreads": each.n_threads,
            "memory_limit": each.memory_limit,
            "host": each.host,
        }
        for each in cluster.workers
        if each.address in views
    }
    machines = {address: view.process.memory for address, view in views.items()}
    return [
        WorkerMachine(memory, views[memory.name].process)
        for memory in read_workers(info, machines, memory_limit)
    ]


def _list_plans(config: PipelineConfig, facts: HealthFacts, n_threads: int) -> list[PlanWorker]:
    if not isinstance(facts.schema, Schema):
        return []
    return list_plans(config, facts.schema, n_threads, facts.history.live_rank)


def _list_skews(facts: HealthFacts) -> Mapping[str, float]:
    """How far other clocks are ahead, seconds, by whose they are."""
    skews: dict[str, object] = {}
    if isinstance(facts.store, StoreFacts):
        skews["store"] = facts.store.skew
    if facts.cluster is not None:
        skews["scheduler"] = facts.cluster.skew
        skews |= {each.address: each.skew for each in facts.cluster.workers}
    if facts.server is not None:
        skews["Prefect"] = facts.server.skew
    return {name: skew for name, skew in skews.items() if isinstance(skew, float)}
