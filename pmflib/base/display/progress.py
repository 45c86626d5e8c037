"""Progress of functions and stages, sent to the listeners of this thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

from pmflib.base.events import find_listeners, send_event

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True)
class Progress:
    """Progress of a function, or of a stage of a pipeline.

    Parameters
    ----------
    stage
        Name of the function, the stage, or a step of it.
    done, total
        Units of work; 0 of 1 if the number is unknown.
    text
        Details for people: rows, log-likelihood.
    """

    stage: str
    done: int
    total: int
    text: str = ""

    @property
    def is_over(self) -> bool:
        """Whether all units are done."""
        return self.done >= self.total


Listener = Callable[[Progress], None]
"""Function called with each report."""

Report = Callable[[int, int, str], None]
"""Function called with the units done, the total, and details."""

_functions: ContextVar[tuple[Listener, ...] | None] = ContextVar("_functions", default=None)
_innermost: ContextVar[Report | None] = ContextVar("_innermost", default=None)


def report_progress(name: str, done: int, total: int, text: str = "") -> None:
    """Report progress by name, even within `divert_functions`: see `Progress`."""
    send_event(Progress(name, done, total, text))


@contextmanager
def divert_functions(to: Listener | None = None) -> Iterator[None]:
    """Redirect or drop the reports of library functions; the caller reports under its own name."""
    tokens = _functions.set(() if to is None else (to,)), _innermost.set(None)
    try:
        yield
    finally:
        _functions.reset(tokens[0])
        _innermost.reset(tokens[1])


@contextmanager
def working(name: str, total: int = 1, text: str = "") -> Iterator[Report | None]:
    """Report a piece of work from start to end, even if it fails.

    Parameters
    ----------
    name
        Name of the work for people: the function.
    total
        Expected units of work; 1 if unknown.
    text
        Details.

    Yields
    ------
    A function for reports in between, from any thread; None without listeners, so that reports need not be computed.
    """
    diverted = _functions.get()
    listeners = find_listeners(Progress) if diverted is None else diverted
    if not listeners:
        yield None
        return
    last = (total, text)

    def send(done: int, of: int, more: str) -> None:
        nonlocal last
        last = (of, more)
        for listener in listeners:
            listener(Progress(name, done, of, more))

    send(0, total, text)
    token = _innermost.set(send)
    try:
        yield send
    finally:
        _innermost.reset(token)
        n_all = max(last[0], 1)
        send(n_all, n_all, last[1])


def reports_progress(function: F) -> F:
    """Decorate a library function to report its start and end; `report_step` reports steps within it.

    The decorator adds a frame: warnings to the caller need ``stacklevel`` 3 instead of 2.
    """

    @wraps(function)
    def reporting(*arguments: Any, **options: Any) -> Any:
        with working(function.__name__):
            return function(*arguments, **options)

    return cast(F, reporting)


def find_report() -> Report | None:
    """Return the function for reports on the innermost work of this thread; None without listeners."""
    return _innermost.get()


def report_step(done: int, total: int, text: str) -> None:
    """Report a step of the innermost work of this thread to listeners, if any."""
    if (send := find_report()) is not None:
        send(done, total, text)
