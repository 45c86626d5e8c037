"""Tables of values on the terminal, and the formats of values in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from pmflib.core.texts import show_text

DIGITS = 12
"""Digits of a digest that identify a model to people; `pmf log` takes them."""


def make_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    narrow: bool = False,
) -> Group:
    """Build a table of values under its title; columns of numbers are aligned to the right.

    A narrow table has no lines between its columns, so that more of them fit on 80 characters.
    """
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)) if narrow else Table()
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        table.add_column(
            Text(show_text(column)), justify="right" if numeric else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(show_text(format_value(value))) for value in row))
    # a title of the table itself would be cut to the table's width
    return Group("", Text(show_text(title), style="bold"), table)


def format_value(value: Any) -> str:
    """Format a value: thousands are grouped, fractions have six significant digits."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() else f"{value:.6g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {format_value(item)}" for key, item in value.items())
    return str(value)


def format_seconds(seconds: float) -> str:
    """Format a time: 42 s, 7 min, 3.5 h, 2.1 days."""
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 5970:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
