"""Progress of functions and of stages, for whoever listens in this thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

from pmflib.core.events import find_listeners, send_event

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

_functions: ContextVar[tuple[Listener, ...] | None] = ContextVar("_functions", default=None)
_innermost: ContextVar[Report | None] = ContextVar("_innermost", default=None)


def report_progress(name: str, done: int, total: int, text: str = "") -> None:
    """Report progress by name, also from inside `divert_functions`: see `Progress`."""
    send_event(Progress(name, done, total, text))


@contextmanager
def divert_functions(to: Listener | None = None) -> Iterator[None]:
    """Send what functions of the library report elsewhere, or nowhere: the caller reports by a name of its own."""
    tokens = _functions.set(() if to is None else (to,)), _innermost.set(None)
    try:
        yield
    finally:
        _functions.reset(tokens[0])
        _innermost.reset(tokens[1])


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
    if (send := find_report()) is not None:
        send(done, total, text)
