"""The examination of a pipeline: states are gathered at the same time, and become lines in a fixed order.

None of the questions can hold up the others.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pmflib.cluster.memory import ClusterMemory, PlanWorker, read_workers
from pmflib.cluster.workers import find_scheduler
from pmflib.core.errors import ConfigError
from pmflib.core.machine import find_temporary_danger
from pmflib.core.texts import mask_secrets
from pmflib.kernels.readiness import KernelState, find_kernel_state
from pmflib.schema import Schema
from pmflib.store.objects.addresses import is_bucket
from pmflib_tasks.config import PipelineConfig, load_config
from pmflib_tasks.config.pipeline import check_target
from pmflib_tasks.operations.doctor import HealthLine, fail, warn
from pmflib_tasks.operations.doctor.cluster_checks import (
    check_clocks,
    check_connections,
    check_dashboard,
    check_scheduler,
    check_worker_states,
)
from pmflib_tasks.operations.doctor.clusters import ClusterState, call_together, find_cluster_state
from pmflib_tasks.operations.doctor.encryption import check_encryption, is_open
from pmflib_tasks.operations.doctor.machines import (
    WorkerMachine,
    check_container,
    check_linear_algebra,
    check_memory,
    check_open_files,
    check_own_threads,
    check_threads,
    check_worker_memory,
)
from pmflib_tasks.operations.doctor.pipeline_checks import (
    RunHistory,
    check_configuration,
    check_history,
    check_schema,
    find_run_history,
)
from pmflib_tasks.operations.doctor.probes import (
    FolderState,
    StoreState,
    look_at_folder,
    look_at_store,
)
from pmflib_tasks.operations.doctor.processes import (
    ProcessState,
    check_kernels,
    check_text_encodings,
    check_versions,
    find_process_state,
)
from pmflib_tasks.operations.doctor.server_checks import ServerState, check_server
from pmflib_tasks.operations.doctor.storage import (
    CACHE_REMEDY,
    PipelinePaths,
    SourceState,
    WorkerView,
    check_disk,
    check_file_system,
    check_sources,
    check_store_folder,
    check_worker_paths,
    look_at_sources,
)
from pmflib_tasks.operations.planning import list_plans

SECONDS = 180.0
"""Longest time for all questions together. What asks others has limits of its own, which add up to less."""

T = TypeVar("T")
Failure: TypeAlias = BaseException
"""What stands for a state that could not be found: the error, or that there was no answer in time."""


@dataclass(frozen=True)
class PipelineState:
    """What is known of a pipeline and of all that works on it.

    Parameters
    ----------
    client, kernels, scratch
        This process, its kernels, its folder for temporary files.
    schema, history, store, sources
        What the configuration names.
    server
        The Prefect server; None where none is configured.
    cluster
        Scheduler and workers; None where none are named, and a run works here.
    """

    client: ProcessState | Failure
    kernels: KernelState | Failure
    scratch: FolderState | Failure
    schema: Schema | Failure
    history: RunHistory
    store: StoreState | Failure
    sources: SourceState
    server: ServerState | None
    cluster: ClusterState | None


def examine(
    config_file: Path, address: str, ask_server: Callable[[Path], ServerState | None]
) -> list[HealthLine]:
    """Examine a pipeline, the processes that would work on it, and what they need.

    Parameters
    ----------
    config_file
        Configuration of the pipeline, ``pipeline.toml``.
    address
        Scheduler to ask; empty for the one that a run would use.
    ask_server
        Asks the Prefect server about a ``pipeline.toml``; gives None where none is configured.

    Returns
    -------
    Lines in a fixed order, whatever is there and whatever is not.
    """
    try:
        config = load_config(config_file)
    except ConfigError as error:
        # all the rest follows from it, but for what is installed
        client = find_process_state()
        return [
            check_configuration(error, str(config_file)),
            *check_versions(client.versions, None, {}),
            check_text_encodings({"client": client}),
        ]
    address = address or find_scheduler(config.cluster)
    state = gather_state(config, address, partial(ask_server, config_file))
    # the history of a store that cannot be used is no line of its own
    store_line = check_store_folder(state.store)
    return [
        check_configuration(config, str(config_file)),
        *_check_paths(state),
        *_check_client(config, state),
        *_check_cluster(config, state),
        *check_server(state.server),
        check_clocks(_list_skews(state)),
        *([] if store_line.state == "FAIL" else check_history(state.history)),
    ]


def gather_state(
    config: PipelineConfig, address: str, ask_server: Callable[[], ServerState | None]
) -> PipelineState:
    """Gather what is known of a pipeline.

    Parameters
    ----------
    config
        The pipeline.
    address
        Scheduler to ask; empty for none.
    ask_server
        Asks the Prefect server.
    """
    path, source = config.resolve(config.store.path), config.source
    skip_empty = source.on_empty_file == "skip"
    paths, suffixes = config.source_paths, source.suffixes
    jobs: dict[str, Callable[[], Any]] = {
        "client": find_process_state,
        "kernels": find_kernel_state,
        "scratch": partial(look_at_folder, tempfile.gettempdir()),
        "schema": lambda: check_target(config, Schema.load(config.resolve(config.schema_.file))),
        "history": partial(find_run_history, config),
        "store": partial(look_at_store, path),
        "sources": partial(look_at_sources, paths, suffixes, skip_empty=skip_empty),
        "server": ask_server,
    }
    if address:
        seen = PipelinePaths(path, "", paths, suffixes, skip_empty)
        jobs["cluster"] = partial(find_cluster_state, address, seen)
    found = call_together(jobs, SECONDS)

    def take(name: str, make: Callable[[str], T]) -> T:
        """A state; instead of an error, the state that says what went wrong."""
        state: T | BaseException = found[name]
        if not isinstance(state, BaseException):
            return state
        return make(mask_secrets(str(state) or type(state).__name__))

    return PipelineState(
        client=found["client"],
        kernels=found["kernels"],
        scratch=found["scratch"],
        schema=found["schema"],
        history=take("history", lambda said: RunHistory(error=said)),
        store=found["store"],
        sources=take("sources", lambda said: SourceState(0, 0, "", said)),
        server=take("server", lambda said: ServerState("the server", said)),
        cluster=take("cluster", lambda said: ClusterState(address, said)) if address else None,
    )


def _check_paths(state: PipelineState) -> list[HealthLine]:
    """Lines on what the configuration names, as the client sees it."""
    lines = [check_schema(state.schema), check_sources(state.sources)]
    lines.append(check_store_folder(state.store))
    if isinstance(state.store, StoreState):
        folder = state.store.folder
        if not folder.is_bucket:
            lines.append(check_file_system(folder))
            lines.append(check_disk("store disk", folder, state.sources.n_bytes))
        elif state.store.cache is not None:
            needed = state.sources.n_bytes
            lines.append(check_disk("mirror disk", state.store.cache, needed, CACHE_REMEDY))
    if isinstance(state.scratch, FolderState):
        if danger := find_temporary_danger():
            lines.append(
                fail(
                    "temporary files", danger, "set TMPDIR to a folder of your own", "configuration"
                )
            )
        else:
            lines.append(check_disk("temporary files", state.scratch, 0))
    return lines


def _check_client(config: PipelineConfig, state: PipelineState) -> list[HealthLine]:
    """Lines on the client's machine, and on what is alike there and at workers."""
    client, cluster = state.client, state.cluster
    if not isinstance(client, ProcessState):
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
            client.versions, scheduler, versions, needs_obstore=is_bucket(config.store.path)
        ),
        check_memory(
            ClusterMemory.here(limit, n_threads),
            _list_plans(config, state, n_threads),
            is_alone=cluster is None,
        ),
    ]
    if cluster is None:
        lines.append(check_own_threads(client, config.cluster.workers))
    kernels: dict[str, KernelState | str] = {
        "client": state.kernels if isinstance(state.kernels, KernelState) else str(state.kernels)
    }
    if cluster is not None:
        # one that says nothing at all has a line of its own
        kernels |= {each.address: each.kernels for each in cluster.workers if each.address in views}
    return [
        *lines,
        *check_linear_algebra(client, machines),
        *check_kernels(kernels),
        check_text_encodings(
            {"client": client} | {name: view.process for name, view in views.items()}
        ),
        check_open_files(client, machines),
        check_container(client, machines),
    ]


def _check_cluster(config: PipelineConfig, state: PipelineState) -> list[HealthLine]:
    """Lines on scheduler and workers; none where a run works here."""
    cluster = state.cluster
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
        *check_worker_states(
            cluster.address, {each.address: each.status for each in cluster.workers}, silent
        ),
        *check_worker_memory(
            [each.memory for each in machines], _list_plans(config, state, n_threads)
        ),
        *check_threads(machines),
        *check_worker_paths(views, unseen, state.sources, cluster.unwritten),
        *check_connections(unfetched, sum(bool(each.fetched_from) for each in cluster.workers)),
    ]


def list_views(cluster: ClusterState) -> dict[str, WorkerView]:
    """What workers see, by address, of those that said so."""
    return {
        each.address: each.view for each in cluster.workers if isinstance(each.view, WorkerView)
    }


def list_machines(cluster: ClusterState, memory_limit: int) -> list[WorkerMachine]:
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


def _list_plans(config: PipelineConfig, state: PipelineState, n_threads: int) -> list[PlanWorker]:
    if not isinstance(state.schema, Schema):
        return []
    return [*list_plans(config, state.schema, n_threads, state.history.live_rank).values()]


def _list_skews(state: PipelineState) -> Mapping[str, float]:
    """How far other clocks are ahead, seconds, by whose they are."""
    skews: dict[str, object] = {}
    if isinstance(state.store, StoreState):
        skews["store"] = state.store.skew
    if state.cluster is not None:
        skews["scheduler"] = state.cluster.skew
        skews |= {each.address: each.skew for each in state.cluster.workers}
    if state.server is not None:
        skews["Prefect"] = state.server.skew
    return {name: skew for name, skew in skews.items() if isinstance(skew, float)}
