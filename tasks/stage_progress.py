"""Progress of the stages, for listeners in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Progress of a stage.

    Parameters
    ----------
    stage
        Name of the stage, or of a step of it.
    done, total
        Units of work; total is 0 where it is not known.
    text
        Details for a user: rows, log-likelihood.
    """

    stage: str
    done: int
    total: int
    text: str = ""


_listeners: list[Callable[[Progress], None]] = []


@contextmanager
def listen(listener: Callable[[Progress], None]) -> Iterator[None]:
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
