"""Comparisons as tables that a person can read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pmflib.selection.comparison import Comparison, Setting, name_setting

BAR_WIDTH = 10
"""Characters of the bar of the worst candidate."""


@dataclass(frozen=True)
class ComparisonTable:
    """A comparison for people.

    Parameters
    ----------
    title
        What was compared, and the unit of the scores.
    columns
        Names: the settings, the held-out score, how far below the best, the standard error of that, a bar.
    rows
        One for each candidate, rounded; the last entry is a bar, and a mark at the choice.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def tabulate(comparison: Comparison) -> ComparisonTable:
    """Make a table of a comparison, a row for every candidate."""
    names = tuple(comparison.points[0].settings)
    most = max(point.below_best for point in comparison.points) or 1.0
    rows = []
    for point in comparison.points:
        bar = "█" * round(BAR_WIDTH * point.below_best / most)
        mark = " chosen" if point is comparison.chosen else ""
        row = [_round(point.settings[name], 6) for name in names]
        row += [_round(point.score, 6), _round(point.below_best, 2)]
        row.append("" if point.error is None else _round(point.error, 2))
        rows.append((*row, (bar + mark).strip()))
    compared = " and ".join(map(name_setting, comparison.varied))
    title = f"Held-out log-likelihood by {compared}, nats per {comparison.unit}"
    columns = (*map(name_setting, names), "score", "below best", "error", "")
    return ComparisonTable(title, columns, tuple(rows))


def draw_markdown(comparisons: Iterable[Comparison]) -> str:
    """Write the tables of comparisons in Markdown, each under its title and reason."""
    parts = []
    for comparison in comparisons:
        table = tabulate(comparison)
        lines = [f"## {table.title}", "", comparison.reason, "", _draw_row(table.columns)]
        lines.append(_draw_row(["---:"] * (len(table.columns) - 1) + [":---"]))
        parts.append("\n".join([*lines, *map(_draw_row, table.rows)]))
    return "\n\n".join(parts)


def _round(value: Setting, digits: int) -> Setting:
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def _draw_row(cells: Sequence[Any]) -> str:
    texts = (f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in cells)
    return f"| {' | '.join(texts)} |"
