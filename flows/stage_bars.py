"""Progress of the stages while a flow runs, drawn as the library draws its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from pmflib.reporting.progress_bars import LINE_SECONDS, draw_progress
from tasks.stage_progress import listen


@contextmanager
def show_progress(console: Console, line_seconds: float = LINE_SECONDS) -> Iterator[None]:
    """Draw a bar for every stage while the context lasts; plain lines where the console is no terminal.

    Parameters
    ----------
    console
        Where to draw.
    line_seconds
        Seconds between lines on a running stage.
    """
    with draw_progress(console, line_seconds) as drawer, listen(drawer):
        yield
