"""Stages: the decorator that makes one, its runs and retries, and the parts that all stages share."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import update_wrapper, wraps
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, cast

from pmflib.base.display.progress import divert_functions
from pmflib.base.errors import LostSchedulerError, PmfError, UnreachableError
from pmflib.base.events import Notice, send_event
from pmflib.base.process_usage import ProcessUsage
from pmflib.base.texts import mask_secrets
from pmflib.cluster import clients, workers
from pmflib.cluster.memory import ClusterMemory
from pmflib.cluster.task_plans import name_tasks
from pmflib.schema import Schema
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.objects.addresses import StoreAccess
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.config.pipeline import check_target
from pmflib_tasks.prefect_runs import is_flow_run, run_task, show_entry

P = ParamSpec("P")
R = TypeVar("R")

RETRY_SECONDS = (2, 10)
"""Waits before a failed stage runs again, in seconds; a stage is retried once per wait."""


@dataclass
class StageRun:
    """One run of a stage, sent to listeners when it starts and when it ends; a retry is another run.

    Parameters
    ----------
    stage
        Name of the stage.
    run_id
        UUID of this run.
    made
        Artefacts that it has built or found in the store.
    is_over
        Whether it has ended.
    error
        The error that ended it, if any.
    client, workers
        Resources used by this process, and by each worker process; set at the end.
    """

    stage: str
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    made: list[Entry] = field(default_factory=list)
    is_over: bool = False
    error: BaseException | None = None
    client: ProcessUsage = field(default_factory=ProcessUsage)
    workers: list[ProcessUsage] = field(default_factory=list)


_current_run: ContextVar[StageRun | None] = ContextVar("_current_run", default=None)


@contextmanager
def follow_stage(stage: str) -> Iterator[None]:
    """Send a `StageRun` to listeners when a stage starts and when it ends."""
    run = StageRun(stage)
    token = _current_run.set(run)
    send_event(run)
    before = ProcessUsage.begin()
    try:
        yield
    except BaseException as error:
        run.error = error
        raise
    finally:
        _current_run.reset(token)
        run.client = ProcessUsage.read().since(before)
        run.is_over = True
        send_event(run)


def note_workers(used: Iterable[ProcessUsage]) -> None:
    """Record the resources that workers used for the current stage, if one runs."""
    if (run := _current_run.get()) is not None:
        run.workers += used


def is_transient(error: BaseException) -> bool:
    """Whether a failed stage may succeed when it runs again without a change of data or options."""
    if isinstance(error, PmfError):
        return isinstance(error, UnreachableError | LostSchedulerError)
    # errors of lost schedulers and workers have no common base class, only a common package
    return isinstance(error, OSError) or type(error).__module__.startswith("distributed")


class Stage(Generic[P, R]):
    """One stage of a pipeline: a Prefect task within a Prefect flow run, a plain function elsewhere.

    Parameters
    ----------
    name
        Name of the stage.
    function
        The work of the stage; its first argument is the configuration.
    makes
        Kind of artefact that the stage makes; empty if it makes none.

    Attributes
    ----------
    fn
        The stage as a function that runs once.
    """

    def __init__(self, name: str, function: Callable[P, R], makes: str = "") -> None:
        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            with follow_stage(name), divert_functions(), name_tasks(name):
                return function(*args, **kwargs)

        self.name, self.makes = name, makes
        self.fn: Callable[P, R] = run
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the stage, with retries after errors that may be transient."""
        if is_flow_run():
            return self._run_as_task(*args, **kwargs)
        for wait in RETRY_SECONDS:
            try:
                return self.fn(*args, **kwargs)
            except Exception as error:
                if not self._is_worth_a_retry(error):
                    raise
            time.sleep(wait)
        return self.fn(*args, **kwargs)

    def _is_worth_a_retry(self, error: BaseException) -> bool:
        """Whether an error may not occur again; if so, listeners are told."""
        if not is_transient(error):
            return False
        send_event(Notice(mask_secrets(f"{self.name} runs again after an error: {error}")))
        return True

    def _run_as_task(self, *args: P.args, **kwargs: P.kwargs) -> R:
        values = [*args, *kwargs.values()]
        values += [
            each for value in values if isinstance(value, Mapping) for each in value.values()
        ]
        config = cast(PipelineConfig, args[0])
        return run_task(
            self.name,
            lambda: self.fn(*args, **kwargs),
            pipeline=config.name,
            makes=self.makes,
            given=[value for value in values if isinstance(value, Reference)],
            waits=RETRY_SECONDS,
            is_worth_a_retry=self._is_worth_a_retry,
        )


def stage(name: str, makes: str = "") -> Callable[[Callable[P, R]], Stage[P, R]]:
    """Decorate a function, whose first argument is the configuration, as a stage of a pipeline.

    Parameters
    ----------
    name
        Name of the stage.
    makes
        Kind of artefact that it makes, if any.
    """
    return lambda function: Stage(name, function, makes)


def open_store(config: PipelineConfig) -> Store:
    """Open the store of a pipeline."""
    return Store(config.resolve(config.store.path))


def load_schema(config: PipelineConfig) -> Schema:
    """Load the schema of a pipeline and check that it has the configured target."""
    return check_target(config, Schema.load(config.resolve(config.schema_.file)))


@contextmanager
def open_workers(
    config: PipelineConfig, address: str
) -> Iterator[tuple[clients.Client, ClusterMemory]]:
    """Connect to the workers at an address, or start the run's own; yield the client and the memory to plan with.

    All workers, and those that join later, can reach the store. The client is None where a small run works in this
    thread alone.
    """
    with ExitStack() as stack:
        address = address or stack.enter_context(workers.use_workers(config.cluster))
        client = stack.enter_context(clients.open_client(address, config.cluster))
        clients.check_workers(client, StoreAccess(open_store(config).address))
        with clients.measure_workers(client, note_workers):
            yield client, clients.find_memory(client, config.cluster.memory_limit)


@contextmanager
def open_workers_late(config: PipelineConfig, address: str) -> Iterator[clients.Client]:
    """Yield a client that connects as `open_workers` does on first use; None where a small run works alone."""
    with ExitStack() as stack:
        if not address and workers.is_alone():
            yield None
            return
        yield clients.LateClient(lambda: stack.enter_context(open_workers(config, address))[0])


def publish_entry(build: Callable[[], Entry]) -> Entry:
    """Build the artefact of a stage, and report it, with the time taken, to Prefect and to listeners."""
    started = time.monotonic()
    entry = build()
    show_entry(entry, time.monotonic() - started)
    if (run := _current_run.get()) is not None:
        run.made.append(entry)
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
    """Build the artefact of a stage with `Store.build`, and report it."""
    return publish_entry(
        lambda: store.build(kind, inputs=inputs, options=options, version=version, write=write)
    )
