"""Parts that all stages share: the Prefect task, the store, workers, and how an artefact is built."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE

from pmflib.config import PipelineConfig
from pmflib.config.target_check import check_target
from pmflib.errors import PmfError, UnreachableError
from pmflib.running import clients
from pmflib.schema import Schema
from pmflib.store.artefacts import Entry, Reference, Store
from tasks.prefect_artifacts import show_entry
from tasks.stage_events import follow_stage, note_artefact

P = ParamSpec("P")
R = TypeVar("R")


def is_worth_a_retry(task_: object, run: object, state: Any) -> bool:
    """Whether a failed stage may succeed when it runs again: not where a user must first change data or options."""
    try:
        state.result()
    except PmfError as error:
        return isinstance(error, UnreachableError)
    except OSError:
        return True
    except Exception as error:
        # errors of lost schedulers and workers have no common base class, only a common package
        return type(error).__module__.startswith("distributed")
    return False


def stage(name: str) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Make a function a Prefect task: one stage of a pipeline. Its first argument is the configuration."""

    def make_task(function: Callable[P, R]) -> Task[P, R]:
        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            with follow_stage(name):
                return function(*args, **kwargs)

        return task(
            name=name,
            # the manifest decides what is done: a second cache could only disagree with it
            cache_policy=NO_CACHE,
            persist_result=False,
            retries=2,
            retry_delay_seconds=[2, 10],
            retry_condition_fn=is_worth_a_retry,
        )(run)

    return make_task


def open_store(config: PipelineConfig) -> Store:
    """Store of a pipeline."""
    return Store(config.resolve(config.store.path))


def load_schema(config: PipelineConfig) -> Schema:
    """Schema of a pipeline, which has its target: the first thing that a run reads."""
    return check_target(config, Schema.load(config.resolve(config.schema_.file)))


@contextmanager
def open_workers(config: PipelineConfig, address: str) -> Iterator[tuple[clients.Client, int]]:
    """Connect to workers, at an address or the run's, which start when needed; yields client and bytes to plan with."""
    with ExitStack() as stack:
        address = address or stack.enter_context(clients.use_workers(config.cluster))
        yield (
            stack.enter_context(clients.open_client(address)),
            config.cluster.memory_limit or clients.find_memory_limit(),
        )


@contextmanager
def open_workers_late(config: PipelineConfig, address: str) -> Iterator[clients.Client]:
    """Give a client that does what `open_workers` does when it is first used."""
    with ExitStack() as stack:
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
