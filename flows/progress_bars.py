"""Progress of the stages on the terminal while a flow runs: bars, or lines where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from flows.console import show_text
from tasks.stage_progress import Progress, listen

LINE_SECONDS = 30.0
"""Seconds between lines on a running stage, where there is no terminal."""


@contextmanager
def show_progress(console: Console) -> Iterator[None]:
    """Draw a bar for every stage while the context lasts; plain lines where the console is no terminal."""
    if not console.is_terminal:
        with listen(_LinePrinter(console)):
            yield
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
    with Bars(*columns, console=console, expand=True) as bars, listen(_BarDrawer(bars)):
        yield


class _LinePrinter:
    """A line when a stage is done, and in a long one every half minute: logs of scheduled runs stay short."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started: dict[str, float] = {}
        self._printed = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        started = self._started.setdefault(progress.stage, now)
        done = progress.done >= progress.total
        if not done and now < max(started, self._printed) + LINE_SECONDS:
            return
        line = f"{progress.stage}: {progress.done:,} of {progress.total:,}, {now - started:,.0f} s"
        text = f", {progress.text}" if progress.text else ""
        self._console.print(Text(show_text(line + text)))
        self._printed = now
        if done:
            # a stage may run again, as when the live model is evaluated
            del self._started[progress.stage]


class _BarDrawer:
    """A bar per stage."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._known: dict[str, TaskID] = {}

    def __call__(self, progress: Progress) -> None:
        if progress.stage not in self._known:
            self._known[progress.stage] = self._bars.add_task(progress.stage, total=None, text="")
        # a single unit has no progress: the bar moves to and fro
        known = progress.total > 1 or progress.done
        self._bars.update(
            self._known[progress.stage],
            completed=progress.done,
            total=progress.total if known else None,
            text=show_text(progress.text),
        )
