"""Progress of the stages, for listeners in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pmflib.reporting.work_progress import Listener, Progress

_listeners: list[Listener] = []


@contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """Call a function with the progress of every stage of this process while the context lasts."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def report(name: str, done: int, total: int, text: str = "") -> None:
    """Send the progress of a stage to all listeners."""
    for listener in _listeners:
        listener(Progress(name, done, total, text))
