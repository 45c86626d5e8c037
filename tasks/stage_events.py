"""Starts and ends of stages, for a listener of the run: when one starts, what it has made, how it ends."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from pmflib.store.artefacts import Entry


@dataclass
class StageRun:
    """One run of a stage; a stage that is tried again runs again.

    Parameters
    ----------
    stage
        Name of the stage.
    run_id
        UUID of this run.
    made
        Artefacts that it has made, or has found already made.
    """

    stage: str
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    made: list[Entry] = field(default_factory=list)


class Listener(Protocol):
    """Is called when stages start and end."""

    def start_stage(self, stage: str, run_id: str) -> None:
        """Note that a stage starts."""

    def end_stage(
        self, stage: str, run_id: str, made: list[Entry], error: BaseException | None = None
    ) -> None:
        """Note that a stage has ended, and by which error, if any."""


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)
_under_way: ContextVar[StageRun | None] = ContextVar("under_way", default=None)


@contextmanager
def listen_to_stages(listener: Listener) -> Iterator[None]:
    """Call a listener for every stage that starts or ends while the context lasts."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


@contextmanager
def follow_stage(stage: str) -> Iterator[None]:
    """Report that a stage starts, and how it ends."""
    listener = _listener.get()
    if listener is None:
        yield
        return
    run = StageRun(stage)
    before = _under_way.set(run)
    listener.start_stage(stage, run.run_id)
    try:
        yield
    except BaseException as error:
        listener.end_stage(stage, run.run_id, run.made, error)
        raise
    else:
        listener.end_stage(stage, run.run_id, run.made)
    finally:
        _under_way.reset(before)


def note_artefact(entry: Entry) -> None:
    """Note an artefact of the stage under way, if any."""
    if (run := _under_way.get()) is not None:
        run.made.append(entry)
