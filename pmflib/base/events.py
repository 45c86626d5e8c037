"""Events during long computations, sent to listeners of the same thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

E = TypeVar("E")

_listeners: ContextVar[tuple[tuple[type, Callable[[Any], None]], ...]] = ContextVar(
    "_listeners", default=()
)


@dataclass(frozen=True)
class Notice:
    """An event in the environment of a run, such as a lost worker, a new worker, or a repeated request.

    Parameters
    ----------
    text
        One sentence for the user.
    is_waiting
        Whether the run is waiting for the condition to end; the notice is then repeated and replaces the progress
        display.
    time
        Time of the event, ISO 8601 in UTC.
    """

    text: str
    is_waiting: bool = False
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))


@contextmanager
def listen(listener: Callable[[E], None], kind: type[E]) -> Iterator[None]:
    """Call a function for every event of a type sent by this thread within the context.

    Other threads and processes are not heard, unless they run in a copy of this thread's context; functions that wait
    for them report their progress.

    Parameters
    ----------
    listener
        Function to call, after those already listening.
    kind
        Class of the events: `Progress`, `Notice`, or others, such as the ends of stages.
    """
    token = _listeners.set((*_listeners.get(), (kind, listener)))
    try:
        yield
    finally:
        _listeners.reset(token)


def find_listeners(kind: type) -> tuple[Callable[[Any], None], ...]:
    """Return this thread's listeners to a type of event, in the order in which they are called."""
    return tuple(listener for heard, listener in _listeners.get() if issubclass(kind, heard))


def send_event(event: object) -> None:
    """Send an event to all listeners of this thread for its type, if any."""
    for listener in find_listeners(type(event)):
        listener(event)
