"""Parts that all stages share: the task, the store, workers, and how an artefact is built."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from pmflib.cluster import clients, workers
from pmflib.cluster.memory import ClusterMemory
from pmflib.schema import Schema
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.objects.addresses import StoreAccess
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.config.pipeline import check_target
from pmflib_tasks.prefect_runs import show_entry
from pmflib_tasks.stage_events import note_artefact, note_workers
from pmflib_tasks.stage_runs import Stage

P = ParamSpec("P")
R = TypeVar("R")


def stage(name: str) -> Callable[[Callable[P, R]], Stage[P, R]]:
    """Make a function one stage of a pipeline. Its first argument is the configuration."""
    return lambda function: Stage(name, function)


def open_store(config: PipelineConfig) -> Store:
    """Store of a pipeline."""
    return Store(config.resolve(config.store.path))


def load_schema(config: PipelineConfig) -> Schema:
    """Schema of a pipeline, which has its target: the first thing that a run reads."""
    return check_target(config, Schema.load(config.resolve(config.schema_.file)))


@contextmanager
def open_workers(
    config: PipelineConfig, address: str
) -> Iterator[tuple[clients.Client, ClusterMemory]]:
    """Connect to workers, at an address or the run's, which start when needed; yields client and memory to plan with.

    All workers see the store, and those that join later. The client is None where a small run works in this thread
    alone.
    """
    with ExitStack() as stack:
        address = address or stack.enter_context(workers.use_workers(config.cluster))
        client = stack.enter_context(clients.open_client(address, config.cluster))
        clients.check_workers(client, StoreAccess(open_store(config).address))
        with clients.measure_workers(client, note_workers):
            yield client, clients.find_memory(client, config.cluster.memory_limit)


@contextmanager
def open_workers_late(config: PipelineConfig, address: str) -> Iterator[clients.Client]:
    """Give a client that does what `open_workers` does when it is first used; None where a small run works alone."""
    with ExitStack() as stack:
        if not address and workers.is_alone():
            yield None
            return
        yield clients.LateClient(lambda: stack.enter_context(open_workers(config, address))[0])


def publish_entry(build: Callable[[], Entry]) -> Entry:
    """Build the artefact of a stage, and show it in Prefect with the time that it took."""
    started = time.monotonic()
    entry = build()
    show_entry(entry, time.monotonic() - started)
    note_artefact(entry)
    return entry


def build_artefact(
    store: Store,
    kind: str,
    *,
    inputs: Mapping[str, Reference],
    options: Mapping[str, Any],
    version: int,
    write: Callable[[Path, Path], Mapping[str, Any]],
) -> Entry:
    """Build the artefact of a stage as `Store.build` does, and show it in Prefect."""
    return publish_entry(
        lambda: store.build(kind, inputs=inputs, options=options, version=version, write=write)
    )
