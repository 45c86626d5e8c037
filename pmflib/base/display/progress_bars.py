"""Display of progress: bars in a terminal or a notebook, lines elsewhere."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from pmflib.base.display.progress import Listener, Progress
from pmflib.base.errors import PmfError
from pmflib.base.events import Notice, listen
from pmflib.base.machine import call_regularly
from pmflib.base.texts import show_text

Shown = Literal["auto", "lines"]

LINE_SECONDS = 4.5
"""Seconds between lines on a running stage without a terminal."""

REMINDER_SECONDS = 0.5
"""Seconds between checks whether a line is due."""

DRAW_SECONDS = 0.5
"""Seconds between updates, each of which is a message to the browser."""


@contextmanager
def progress(to: Shown | Listener = "auto") -> Iterator[None]:
    """Show the progress of library functions within a context; outside of one they are silent.

    Covers `count_pairs` of batches, `fit`, `fit_em`, `fit_triples`, `distil`, `select_rank`, `class_regression`
    and `crowd.aggregate`.

    Parameters
    ----------
    to
        "auto" draws bars in a notebook or a terminal, and removes them at the end; in a batch job it prints nothing.
        "lines" prints a line every few seconds on standard error, for logs of batch jobs. A function is called with a
        `Progress` (``stage``, ``done``, ``total`` and ``text``) at each report, possibly from another thread.

    Raises
    ------
    PmfError
        If ``to`` is none of these.

    Examples
    --------
    >>> import numpy as np, pmflib as pmf
    >>> counts = pmf.count_pairs(np.array([[0, 1], [1, 0]] * 20), [2, 2])
    >>> with pmf.progress(lambda each: print(each.stage, each.done, "of", each.total)):
    ...     result = pmf.fit(counts, rank=2, method="spa")
    fit 0 of 1
    fit 1 of 1
    """
    if callable(to):
        with listen(to, Progress):
            yield
        return
    if to not in ("auto", "lines"):
        raise PmfError(f"to is {to!r}; pass 'auto', 'lines', or a function")
    options: dict[str, Any] = {"stderr": True, "markup": False, "emoji": False, "highlight": False}
    if to == "lines":
        options |= {"force_terminal": False, "force_jupyter": False, "soft_wrap": True}
    console = Console(**options)
    if console.is_jupyter:
        with draw_in_notebook():
            yield
    elif to == "lines" or console.is_terminal:
        with draw_progress(console, transient=True):
            yield
    else:
        yield


@contextmanager
def draw_progress(
    console: Console, line_seconds: float = LINE_SECONDS, *, transient: bool = False
) -> Iterator[None]:
    """Draw bars for the reports of this thread within a context; plain lines if the console is not a terminal.

    Parameters
    ----------
    console
        Console to draw on.
    line_seconds
        Seconds between lines on running work.
    transient
        Whether to remove the bars at the end; lines stay.
    """
    if not console.is_terminal:
        printer = LinePrinter(console, line_seconds)
        with (
            call_regularly(printer.remind, REMINDER_SECONDS),
            listen(printer, Progress),
            listen(printer.print_notice, Notice),
        ):
            yield
        return
    columns = (
        TextColumn("{task.description:>16}", markup=False),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=7)),
        # the text shrinks in a narrow terminal
        TextColumn(
            "{task.fields[text]}",
            markup=False,
            table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
        ),
    )
    with Bars(*columns, console=console, expand=True, transient=transient) as bars:
        drawer = _BarDrawer(bars)
        with listen(drawer, Progress), listen(drawer.print_notice, Notice):
            yield


@contextmanager
def draw_in_notebook() -> Iterator[_ListDrawer]:
    """Draw bars for the reports of this thread in a notebook, and remove them at the end.

    Uses the display of IPython, because Rich needs ipywidgets to draw in notebooks.

    Yields
    ------
    The bars, which take reports.
    """
    ipython = importlib.import_module("IPython.display")
    handle = ipython.display(ipython.HTML(""), display_id=True)
    drawer = _ListDrawer()

    def draw() -> None:
        handle.update(ipython.HTML(drawer.write()))

    try:
        with call_regularly(draw, DRAW_SECONDS), listen(drawer, Progress):
            yield drawer
    finally:
        handle.update(ipython.HTML(""))


class LinePrinter:
    """Lines at the end of stages, and every few seconds during a long stage, even without reports."""

    def __init__(self, console: Console, line_seconds: float = LINE_SECONDS) -> None:
        self._console, self._seconds = console, line_seconds
        self._started: dict[str, float] = {}
        self._last: dict[str, Progress] = {}
        self._waiting = ""
        self._printed = time.monotonic()
        # reports come from the threads of stages, reminders from another
        self._lock = threading.Lock()

    def __call__(self, progress: Progress) -> None:
        """Take a report."""
        with self._lock:
            self._started.setdefault(progress.stage, time.monotonic())
            self._last[progress.stage] = progress
            self._waiting = ""
            if not progress.is_over:
                self._print_due()
                return
            self._print(progress)
            # a stage may run again, as in the evaluation of the live model
            del self._started[progress.stage], self._last[progress.stage]

    def print_notice(self, notice: Notice) -> None:
        """Print a notice; one about waiting replaces the last report."""
        with self._lock:
            if notice.is_waiting:
                self._waiting = notice.text
                self._print_due()
                return
            self._waiting = ""
            self._console.print(Text(show_text(notice.text)))

    def remind(self) -> None:
        """Print the last report again if nothing was printed for some time."""
        with self._lock:
            self._print_due()

    def _print_due(self) -> None:
        """Print a line on the stage that reported last, if one is due."""
        if not self._last:
            return
        stage, progress = next(reversed(self._last.items()))
        if time.monotonic() >= max(self._started[stage], self._printed) + self._seconds:
            self._print(progress)

    def _print(self, progress: Progress) -> None:
        now = time.monotonic()
        spent = now - self._started[progress.stage]
        line = f"{progress.stage}: {progress.done:,} of {progress.total:,}, {spent:,.0f} s"
        text = self._waiting or progress.text
        self._console.print(Text(show_text(f"{line}, {text}" if text else line)))
        self._printed = now


class _BarDrawer:
    """A bar per stage, which restarts if the stage runs again."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._known: dict[str, TaskID] = {}
        self._ended: set[str] = set()

    def print_notice(self, notice: Notice) -> None:
        """Print a notice above the bars; one about waiting is shown beside the running bars."""
        if not notice.is_waiting:
            self._bars.console.print(Text(show_text(notice.text)))
            return
        for stage, task in self._known.items():
            if stage not in self._ended:
                self._bars.update(task, text=show_text(notice.text))

    def __call__(self, progress: Progress) -> None:
        if progress.stage not in self._known:
            self._known[progress.stage] = self._bars.add_task(progress.stage, total=None, text="")
        if progress.stage in self._ended:
            self._bars.reset(self._known[progress.stage])
        (self._ended.add if progress.is_over else self._ended.discard)(progress.stage)
        # a single unit has no progress: the bar pulses
        known = progress.total > 1 or progress.done
        self._bars.update(
            self._known[progress.stage],
            completed=progress.done,
            total=progress.total if known else None,
            text=show_text(progress.text),
        )


class _ListDrawer:
    """Keeper of the last report of each function, which it writes as HTML progress elements."""

    def __init__(self) -> None:
        self._started: dict[str, float] = {}
        self._last: dict[str, tuple[Progress, float]] = {}
        # reports and drawings come from different threads
        self._lock = threading.Lock()

    def __call__(self, progress: Progress) -> None:
        """Take a report."""
        now = time.monotonic()
        with self._lock:
            before = self._last.get(progress.stage)
            if before is None or before[0].is_over:
                self._started[progress.stage] = now
            self._last[progress.stage] = progress, now

    def write(self) -> str:
        """Write a line per function: its name, a bar, the time, details."""
        with self._lock:
            return "".join(self._write_line(*last) for last in self._last.values())

    def _write_line(self, progress: Progress, at: float) -> str:
        spent = (at if progress.is_over else time.monotonic()) - self._started[progress.stage]
        numbers: dict[str, object] = {}
        # a single unit has no progress: the bar pulses
        if progress.total > 1 or progress.done:
            numbers = {"value": progress.done, "max": max(progress.total, 1)}
        attributes = "".join(f' {name}="{value}"' for name, value in numbers.items())
        count = f"{progress.done:,} of {progress.total:,}, " if progress.total > 1 else ""
        text = f"{count}{spent:,.0f} s" + (f", {progress.text}" if progress.text else "")
        name, details = (escape(show_text(each)) for each in (progress.stage, text))
        return f"<div>{name} <progress{attributes}></progress> <small>{details}</small></div>"
