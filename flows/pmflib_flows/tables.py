"""Tables on the terminal, and the length of digests in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from pmflib.base.display.summary import SummaryTable
from pmflib.base.texts import show_text


def make_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, narrow: bool = False
) -> Group:
    """Build a table of values under its title; columns of numbers are aligned to the right.

    A narrow table has no lines between its columns, so that more of them fit on 80 characters.
    """
    return draw_table(SummaryTable.of_values(title, columns, rows), narrow=narrow)


def draw_table(table: SummaryTable, *, narrow: bool = False) -> Group:
    """Draw a table, with all its rows, under its title."""
    drawn = table.fill(Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)) if narrow else Table())
    # a title of the table itself would be cut to the table's width
    return Group("", Text(show_text(table.title), style="bold"), drawn)
