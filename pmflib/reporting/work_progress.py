"""Progress of functions of the library, for whoever has asked for it: see `pmflib.progress`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True)
class Progress:
    """Progress of a function, or of a stage of a pipeline.

    Parameters
    ----------
    stage
        Name of the function, of the stage, or of a step of it.
    done, total
        Units of work; 0 of 1 where nothing more is known.
    text
        Details for a user: rows, log-likelihood.
    """

    stage: str
    done: int
    total: int
    text: str = ""

    @property
    def is_over(self) -> bool:
        """Whether all is done."""
        return self.done >= self.total


Listener = Callable[[Progress], None]
"""Called with every report."""

Report = Callable[[int, int, str], None]
"""Called with units that are done, units in all, and details."""

_listener: ContextVar[Listener | None] = ContextVar("_listener", default=None)
_innermost: ContextVar[Report | None] = ContextVar("_innermost", default=None)


@contextmanager
def listen_here(listener: Listener) -> Iterator[None]:
    """Call a function with the progress of whatever this thread does while the context lasts.

    What other threads and processes do is not reported: the function that waits for them says how far they are.
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def working(name: str, total: int = 1, text: str = "") -> Iterator[Report | None]:
    """Report a piece of work from its start to its end, also where it fails.

    Parameters
    ----------
    name
        What people call it: the function.
    total
        Units of work that are expected; 1 where that is not known.
    text
        Details.

    Yields
    ------
    What takes reports in between, from any thread; None where nobody listens, so that nothing need be worked out.
    """
    listener = _listener.get()
    if listener is None:
        yield None
        return
    last = (total, text)

    def report(done: int, of: int, more: str) -> None:
        nonlocal last
        last = (of, more)
        listener(Progress(name, done, of, more))

    listener(Progress(name, 0, total, text))
    token = _innermost.set(report)
    try:
        yield report
    finally:
        _innermost.reset(token)
        n_all = max(last[0], 1)
        listener(Progress(name, n_all, n_all, last[1]))


def reports_progress(function: F) -> F:
    """Decorate a function of the library: it reports its start and its end, and within it `report_step` does the rest.

    A warning of the function to its caller has one frame more to pass: ``stacklevel`` 3 in place of 2.
    """

    @wraps(function)
    def reporting(*arguments: Any, **options: Any) -> Any:
        with working(function.__name__):
            return function(*arguments, **options)

    return cast(F, reporting)


def find_report() -> Report | None:
    """What takes reports on the innermost piece of work of this thread; None where nobody listens."""
    return _innermost.get()


def report_step(done: int, total: int, text: str) -> None:
    """Report a step of the innermost piece of work of this thread; nothing where nobody listens."""
    report = find_report()
    if report is not None:
        report(done, total, text)
