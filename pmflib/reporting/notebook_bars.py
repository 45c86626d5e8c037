"""Progress in a notebook: a list that is drawn over again, and is gone at the end."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from pmflib.reporting.work_progress import Listener, Progress
from pmflib.running.heartbeats import beat
from pmflib.safe_text import show_text

DRAW_SECONDS = 0.5
"""Seconds between drawings: each is a message to the browser."""


@contextmanager
def draw_in_notebook() -> Iterator[Listener]:
    """Draw a bar for everything that reports while the context lasts, and leave the cell clean.

    By IPython's own display, for Rich draws in notebooks only where ipywidgets is installed.

    Yields
    ------
    What takes the reports, from any thread.
    """
    ipython = importlib.import_module("IPython.display")
    handle = ipython.display(ipython.HTML(""), display_id=True)
    drawer = _ListDrawer()

    def draw() -> None:
        handle.update(ipython.HTML(drawer.write()))

    try:
        with beat(draw, DRAW_SECONDS):
            yield drawer
    finally:
        handle.update(ipython.HTML(""))


class _ListDrawer:
    """Keeps the last report of every function, and writes them as elements of HTML that show progress."""

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
        numbers: dict[str, Any] = {}
        # a single unit has no progress: the bar moves to and fro
        if progress.total > 1 or progress.done:
            numbers = {"value": progress.done, "max": max(progress.total, 1)}
        attributes = "".join(f' {name}="{value}"' for name, value in numbers.items())
        count = f"{progress.done:,} of {progress.total:,}, " if progress.total > 1 else ""
        text = f"{count}{spent:,.0f} s" + (f", {progress.text}" if progress.text else "")
        name, details = (escape(show_text(each)) for each in (progress.stage, text))
        return f"<div>{name} <progress{attributes}></progress> <small>{details}</small></div>"
