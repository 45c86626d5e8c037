"""Progress on the terminal: bars, or lines where there is no terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from pmflib.reporting.work_progress import Listener, Progress
from pmflib.running.heartbeats import beat
from pmflib.safe_text import show_text

LINE_SECONDS = 4.5
"""Seconds between lines on a running stage, where there is no terminal: whoever waits sees one every five seconds."""

BEAT_SECONDS = 0.5
"""Seconds between looks at whether a line is due."""


@contextmanager
def draw_progress(
    console: Console, line_seconds: float = LINE_SECONDS, *, transient: bool = False
) -> Iterator[Listener]:
    """Draw a bar for everything that reports while the context lasts; plain lines where the console is no terminal.

    Parameters
    ----------
    console
        Where to draw.
    line_seconds
        Seconds between lines on what is still going on.
    transient
        Whether the bars are gone at the end; lines stay.

    Yields
    ------
    What takes the reports, from any thread.
    """
    if not console.is_terminal:
        printer = LinePrinter(console, line_seconds)
        with beat(printer.remind, BEAT_SECONDS):
            yield printer
        return
    columns = (
        TextColumn("{task.description:>16}", markup=False),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=7)),
        # the text gives way where the terminal is narrow
        TextColumn(
            "{task.fields[text]}",
            markup=False,
            table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
        ),
    )
    with Bars(*columns, console=console, expand=True, transient=transient) as bars:
        yield _BarDrawer(bars)


class LinePrinter:
    """A line when a stage is done, and in a long one every few seconds, whether it reports something or not."""

    def __init__(self, console: Console, line_seconds: float = LINE_SECONDS) -> None:
        self._console, self._seconds = console, line_seconds
        self._started: dict[str, float] = {}
        self._last: dict[str, Progress] = {}
        self._printed = time.monotonic()
        # reports come from the threads of stages, reminders from another
        self._lock = threading.Lock()

    def __call__(self, progress: Progress) -> None:
        """Take a report."""
        with self._lock:
            self._started.setdefault(progress.stage, time.monotonic())
            self._last[progress.stage] = progress
            if not progress.is_over:
                self._print_due()
                return
            self._print(progress)
            # a stage may run again, as when the live model is evaluated
            del self._started[progress.stage], self._last[progress.stage]

    def remind(self) -> None:
        """Print the last report again where nothing was printed for long."""
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
        text = f", {progress.text}" if progress.text else ""
        self._console.print(Text(show_text(line + text)))
        self._printed = now


class _BarDrawer:
    """A bar per stage; one that runs again starts its bar again."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._known: dict[str, TaskID] = {}
        self._ended: set[str] = set()

    def __call__(self, progress: Progress) -> None:
        if progress.stage not in self._known:
            self._known[progress.stage] = self._bars.add_task(progress.stage, total=None, text="")
        if progress.stage in self._ended:
            self._bars.reset(self._known[progress.stage])
        (self._ended.add if progress.is_over else self._ended.discard)(progress.stage)
        # a single unit has no progress: the bar moves to and fro
        known = progress.total > 1 or progress.done
        self._bars.update(
            self._known[progress.stage],
            completed=progress.done,
            total=progress.total if known else None,
            text=show_text(progress.text),
        )
