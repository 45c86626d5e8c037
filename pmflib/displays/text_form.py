"""Summaries as text, for terminals and logs."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from pmflib.displays.summary import FIRST_ROWS, Summary, SummaryTable
from pmflib.safe_text import show_text

LEAST_WIDTH = 40
"""Columns of text that are used however narrow the terminal is."""


def write_text(summary: Summary, width: int | None = None) -> str:
    """Write a summary as plain text.

    Parameters
    ----------
    summary
        What to write.
    width
        Characters of a line at most, of which at least ``LEAST_WIDTH`` are used; None is the width of the terminal.
    """
    if width is None:
        width = shutil.get_terminal_size((100, 24)).columns
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=max(width, LEAST_WIDTH),
        color_system=None,
        force_terminal=False,
        force_jupyter=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    console.print(_text(summary.headline))
    if summary.facts:
        console.print(_draw_grid([(f"  {name}", value) for name, value in summary.facts], 2))
    if summary.notes:
        console.print(_draw_grid([("  *", note) for note in summary.notes], 1))
    for table in summary.tables:
        console.print()
        console.print(_text(table.title))
        console.print(_draw(table))
        if rest := table.name_rest(min(len(table.rows), FIRST_ROWS)):
            console.print(_text(f"  {rest}"))
    lines = (line.rstrip() for line in stream.getvalue().splitlines())
    return "\n".join(lines).strip("\n")


def _draw_grid(rows: Sequence[tuple[str, str]], gap: int) -> RenderableType:
    grid = Table.grid(padding=(0, gap, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(_text(name), _text(value))
    return grid


def _draw(table: SummaryTable) -> RenderableType:
    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for name in table.columns:
        right = name.startswith(">")
        drawn.add_column(
            _text(name.removeprefix(">")),
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=right,
        )
    for row in table.rows[:FIRST_ROWS]:
        drawn.add_row(*map(_text, row))
    return drawn


def _text(text: str) -> Text:
    return Text(show_text(text))
