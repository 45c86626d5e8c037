"""Starts and ends of stages, for whoever listens to the run: when one starts, what it has made, how it ends."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from pmflib.core.events import send_event
from pmflib.core.process_usage import ProcessUsage
from pmflib.store.artefacts import Entry


@dataclass
class StageRun:
    """One run of a stage, which is sent to listeners when it starts and when it ends.

    A stage that is tried again runs again.

    Parameters
    ----------
    stage
        Name of the stage.
    run_id
        UUID of this run.
    made
        Artefacts that it has made, or has found already made.
    is_over
        Whether it has ended.
    error
        The error by which it has ended, if any.
    client, workers
        What this process has used for it, and each of the processes of its workers, once it has ended.
    """

    stage: str
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    made: list[Entry] = field(default_factory=list)
    is_over: bool = False
    error: BaseException | None = None
    client: ProcessUsage = field(default_factory=ProcessUsage)
    workers: list[ProcessUsage] = field(default_factory=list)


_under_way: ContextVar[StageRun | None] = ContextVar("_under_way", default=None)


@contextmanager
def follow_stage(stage: str) -> Iterator[None]:
    """Send listeners a `StageRun` when a stage starts, and when it ends."""
    run = StageRun(stage)
    token = _under_way.set(run)
    send_event(run)
    before = ProcessUsage.begin()
    try:
        yield
    except BaseException as error:
        run.error = error
        raise
    finally:
        _under_way.reset(token)
        run.client = ProcessUsage.read().since(before)
        run.is_over = True
        send_event(run)


def note_workers(used: Iterable[ProcessUsage]) -> None:
    """Note what workers have used for the stage under way, if any."""
    if (run := _under_way.get()) is not None:
        run.workers += used


def note_artefact(entry: Entry) -> None:
    """Note an artefact of the stage under way, if any."""
    if (run := _under_way.get()) is not None:
        run.made.append(entry)
