"""Events on the way of long work, for whoever listens in this thread."""

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
    """Something that happens around a run: a worker is lost, or joins, a request is made again.

    Parameters
    ----------
    text
        One sentence for a person.
    is_waiting
        Whether the run waits for it to pass: it is said again while that lasts, and stands in place of the progress.
    time
        When it happened, ISO 8601 in UTC.
    """

    text: str
    is_waiting: bool = False
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))


@contextmanager
def listen(listener: Callable[[E], None], kind: type[E]) -> Iterator[None]:
    """Call a function with every event of a kind that this thread sends while the context lasts.

    Other threads and processes are not heard, unless they run in a copy of this thread's context: the function that
    waits for them says how far they are.

    Parameters
    ----------
    listener
        What is called, after those that listen already.
    kind
        Class of the events: `Progress`, `Notice`, or what else a part of a program reports, such as the ends of stages.
    """
    token = _listeners.set((*_listeners.get(), (kind, listener)))
    try:
        yield
    finally:
        _listeners.reset(token)


def find_listeners(kind: type) -> tuple[Callable[[Any], None], ...]:
    """Those of this thread that listen to a kind of events, in the order in which they are called."""
    return tuple(listener for heard, listener in _listeners.get() if issubclass(kind, heard))


def send_event(event: object) -> None:
    """Send an event to all listeners of this thread to its kind; do nothing where nobody listens."""
    for listener in find_listeners(type(event)):
        listener(event)
