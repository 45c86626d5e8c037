"""Parts that all stages share: the task, the store, workers, and how an artefact is built."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property, update_wrapper, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from pmflib.config import PipelineConfig
from pmflib.errors import PmfError, UnreachableError
from pmflib.running import clients
from pmflib.running.memory_limits import find_memory_limit
from pmflib.schema import Schema
from pmflib.store.artefacts import Entry, Reference, Store
from tasks.prefect_artifacts import show_entry
from tasks.prefect_runs import is_flow_run
from tasks.stage_events import follow_stage, note_artefact

if TYPE_CHECKING:
    from prefect import Task

P = ParamSpec("P")
R = TypeVar("R")


RETRY_SECONDS = (2, 10)
"""Waits before a failed stage runs again, seconds: as many times as there are waits."""


def is_worth_a_retry(error: BaseException) -> bool:
    """Whether a failed stage may succeed when it runs again: not where a user must first change data or options."""
    if isinstance(error, PmfError):
        return isinstance(error, UnreachableError)
    # errors of lost schedulers and workers have no common base class, only a common package
    return isinstance(error, OSError) or type(error).__module__.startswith("distributed")


class Stage(Generic[P, R]):
    """One stage of a pipeline: a task of Prefect in a flow run of Prefect, a function with the same retries elsewhere.

    Parameters
    ----------
    name
        Name of the stage.
    function
        What it does; its first argument is the configuration.

    Attributes
    ----------
    fn
        The stage as a function, run once.
    """

    def __init__(self, name: str, function: Callable[P, R]) -> None:
        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            with follow_stage(name):
                return function(*args, **kwargs)

        self.name, self.fn = name, run
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the stage; again after a while, where a failure may pass."""
        if is_flow_run():
            return self.task(*args, **kwargs)
        for wait in RETRY_SECONDS:
            try:
                return self.fn(*args, **kwargs)
            except Exception as error:
                if not is_worth_a_retry(error):
                    raise
            time.sleep(wait)
        return self.fn(*args, **kwargs)

    @cached_property
    def task(self) -> Task[P, R]:
        """The task of Prefect."""
        from prefect import task
        from prefect.cache_policies import NO_CACHE

        return task(
            name=self.name,
            # the manifest decides what is done: a second cache could only disagree with it
            cache_policy=NO_CACHE,
            persist_result=False,
            retries=len(RETRY_SECONDS),
            retry_delay_seconds=list(RETRY_SECONDS),
            retry_condition_fn=_is_state_worth_a_retry,
        )(self.fn)


def _is_state_worth_a_retry(task_: object, run: object, state: Any) -> bool:
    try:
        state.result()
    except Exception as error:
        return is_worth_a_retry(error)
    return False


def stage(name: str) -> Callable[[Callable[P, R]], Stage[P, R]]:
    """Make a function one stage of a pipeline. Its first argument is the configuration."""
    return lambda function: Stage(name, function)


def open_store(config: PipelineConfig) -> Store:
    """Store of a pipeline."""
    return Store(config.resolve(config.store.path))


def load_schema(config: PipelineConfig) -> Schema:
    """Schema of a pipeline."""
    return Schema.load(config.resolve(config.schema_.file))


@contextmanager
def open_workers(config: PipelineConfig, address: str) -> Iterator[tuple[clients.Client, int]]:
    """Connect to workers, at an address or the run's, which start when needed; yields client and bytes to plan with.

    The client is None where a small run works in this thread alone.
    """
    with ExitStack() as stack:
        address = address or stack.enter_context(clients.use_workers(config.cluster))
        yield (
            stack.enter_context(clients.open_client(address)),
            config.cluster.memory_limit or find_memory_limit(),
        )


@contextmanager
def open_workers_late(config: PipelineConfig, address: str) -> Iterator[clients.Client]:
    """Give a client that does what `open_workers` does when it is first used; None where a small run works alone."""
    with ExitStack() as stack:
        if not address and clients.is_alone():
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
