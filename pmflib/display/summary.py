"""A summary: a headline, facts, notes and tables; text in a terminal, HTML in a notebook."""

from __future__ import annotations

import io
import math
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from pmflib.core.comparison import (
    Comparison,
    ScoredCandidate,
    Setting,
    format_setting,
    name_setting,
)
from pmflib.core.texts import show_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text


FIRST_ROWS = 10
"""Rows of a table that are shown at once."""

MOST_ROWS = 200
"""Rows of a table that a summary holds at most: a notebook keeps them all in its file."""

LEAST_WIDTH = 40
"""Columns of text that are used however narrow the terminal is."""

STYLE = (
    "<style>"
    ".pmf-summary{color:inherit;background:transparent;max-width:100%;overflow-x:auto}"
    ".pmf-summary table{border-collapse:collapse;margin:.3em 0;color:inherit;background:transparent}"
    ".pmf-summary caption{caption-side:top;text-align:left;font-weight:bold;color:inherit;padding:.2em 0}"
    ".pmf-summary th,.pmf-summary td{padding:.15em .7em;text-align:left;vertical-align:top;color:inherit;"
    "background:transparent;border:0;border-bottom:1px solid rgba(128,128,128,.35);overflow-wrap:anywhere}"
    ".pmf-summary .r{text-align:right;white-space:nowrap}"
    ".pmf-summary .headline{font-weight:bold;margin:.2em 0}"
    ".pmf-summary summary{cursor:pointer}"
    "</style>"
)
"""Colours are those of the page: a notebook may be dark or light."""


@dataclass(frozen=True)
class SummaryTable:
    """A table of texts.

    Parameters
    ----------
    title
        What it lists.
    columns
        Names of the columns; one that starts with ``>`` is aligned to the right, and is shown without it.
    rows
        Cells, a text per column; at most ``MOST_ROWS`` are kept.
    n_all
        Rows that there are, of which ``rows`` are the first.
    more
        Where the others are found, such as ``"result.workers"``.
    folded
        Whether a notebook shows the title alone until it is opened.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    n_all: int
    more: str = ""
    folded: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(self.rows[:MOST_ROWS]))

    def name_rest(self, n_shown: int) -> str:
        """Sentence on the rows that are not shown; empty where all are."""
        n_more = self.n_all - n_shown
        if n_more <= 0:
            return ""
        return f"{n_more:,} more" + (f": {self.more}" if self.more else "")


@dataclass(frozen=True)
class Summary:
    """What a person wants to know first of an object.

    ``print`` and the prompt show the text, a notebook the HTML. Texts of the data are escaped in both; the size is
    bounded, whatever the object holds.

    Parameters
    ----------
    headline
        What it is.
    facts
        Names and values, in order.
    notes
        Sentences that a careful user should know.
    tables
        Tables, the most important first.
    """

    headline: str
    facts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    tables: tuple[SummaryTable, ...] = ()

    def to_text(self, width: int | None = None) -> str:
        """Text of lines of ``width`` characters at most, of which at least ``LEAST_WIDTH`` are used.

        None is the width of the terminal.
        """
        return _write_text(self, width)

    def to_html(self) -> str:
        """HTML element: no script, no colour of its own, nothing from elsewhere."""
        return _write_html(self)

    def __repr__(self) -> str:
        """The text form."""
        return self.to_text()

    def _repr_html_(self) -> str:
        return self.to_html()


class Summarised:
    """An object that notebooks show by its summary."""

    def summary(self) -> Summary:
        """What a person wants to know first: text in a terminal, HTML in a notebook, of bounded size."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return self.summary().to_html()


def _write_text(summary: Summary, width: int | None = None) -> str:
    from rich.console import Console

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
    console.print(_wrap(summary.headline))
    if summary.facts:
        console.print(_draw_grid([(f"  {name}", value) for name, value in summary.facts], 2))
    if summary.notes:
        console.print(_draw_grid([("  *", note) for note in summary.notes], 1))
    for table in summary.tables:
        console.print()
        console.print(_wrap(table.title))
        console.print(_draw(table))
        if rest := table.name_rest(min(len(table.rows), FIRST_ROWS)):
            console.print(_wrap(f"  {rest}"))
    lines = (line.rstrip() for line in stream.getvalue().splitlines())
    return "\n".join(lines).strip("\n")


def _draw_grid(rows: Sequence[tuple[str, str]], gap: int) -> RenderableType:
    from rich.table import Table

    grid = Table.grid(padding=(0, gap, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(_wrap(name), _wrap(value))
    return grid


def _draw(table: SummaryTable) -> RenderableType:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for name in table.columns:
        right = name.startswith(">")
        shown.add_column(
            _wrap(name.removeprefix(">")),
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=right,
        )
    for row in table.rows[:FIRST_ROWS]:
        shown.add_row(*map(_wrap, row))
    return shown


def _wrap(text: str) -> Text:
    from rich.text import Text

    return Text(show_text(text))


def _write_html(summary: Summary) -> str:
    """Write a summary as one HTML element; every text is escaped, and there is no script in it."""
    parts = [STYLE, f'<p class="headline">{_escape(summary.headline)}</p>']
    if summary.facts:
        rows = "".join(
            f'<tr><th scope="row">{_escape(name)}</th><td>{_escape(value)}</td></tr>'
            for name, value in summary.facts
        )
        parts.append(f"<table><tbody>{rows}</tbody></table>")
    if summary.notes:
        notes = "".join(f"<li>{_escape(note)}</li>" for note in summary.notes)
        parts.append(f"<ul>{notes}</ul>")
    parts += map(_write_table, summary.tables)
    return f'<div class="pmf-summary">{"".join(parts)}</div>'


def _write_table(table: SummaryTable) -> str:
    """Write a table; what is beyond its first rows can be opened."""
    if table.folded:
        return _fold(table.title, _write_rows(table, table.rows) + _write_rest(table))
    first, others = table.rows[:FIRST_ROWS], table.rows[FIRST_ROWS:]
    html = _write_rows(table, first, table.title)
    if others:
        text = f"{len(others):,} more of {table.n_all:,}"
        html += _fold(text, _write_rows(table, others) + _write_rest(table))
    else:
        html += _write_rest(table)
    return html


def _write_rest(table: SummaryTable) -> str:
    rest = table.name_rest(len(table.rows))
    return f"<p>{_escape(rest)}</p>" if rest else ""


def _fold(title: str, html: str) -> str:
    return f"<details><summary>{_escape(title)}</summary>{html}</details>"


def _write_rows(table: SummaryTable, rows: Iterable[Sequence[str]], caption: str = "") -> str:
    classes = [' class="r"' if name.startswith(">") else "" for name in table.columns]
    head = "".join(
        f'<th scope="col"{each}>{_escape(name.removeprefix(">"))}</th>'
        for name, each in zip(table.columns, classes, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{each}>{_escape(cell)}</td>" for cell, each in zip(row, classes, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    title = f"<caption>{_escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _escape(text: str) -> str:
    """Text of data as it may stand in HTML: a browser neither acts on it nor reverses its direction."""
    from html import escape

    return escape(show_text(text))


LONGEST = 48
"""Characters of a text of the data that are shown at most."""


def format_count(number: int | np.integer[Any]) -> str:
    """Text of a whole number, thousands grouped."""
    return f"{int(number):,}"


def percent(share: float) -> str:
    """Text of a share, three digits at most: never 0 % of something, never 100 % of not everything.

    Examples
    --------
    >>> percent(0.1234), percent(0.00002), percent(0.99999), percent(1.0), percent(math.nan)
    ('12.3 %', '<0.1 %', '>99.9 %', '100 %', 'unknown')
    """
    if math.isnan(share):
        return "unknown"
    if 0 < share < 0.001:
        return "<0.1 %"
    if 0.999 < share < 1:
        return ">99.9 %"
    return f"{100 * share:.3g} %"


def decimal(number: float, digits: int = 4) -> str:
    """Text of a number, in some significant digits."""
    return "unknown" if math.isnan(number) else f"{number:,.{digits}g}"


def nats(number: float) -> str:
    """Text of a log-likelihood, four decimals: differences between models are in these."""
    return f"{number:.4f}"


def cut(text: str, longest: int = LONGEST) -> str:
    """Text of the data, cut where it is long."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def join_some(texts: Iterable[str], n_all: int, n_shown: int = 6) -> str:
    """First texts of many, and how many more there are.

    Examples
    --------
    >>> join_some(["a", "b", "c"], 3, 2)
    'a, b, … (1 more)'
    """
    shown = [cut(text) for text in islice(texts, n_shown)]
    more = n_all - len(shown)
    return ", ".join(shown) + (f", … ({more:,} more)" if more > 0 else "")


def name_missing(texts: Sequence[str]) -> str:
    """Texts that mean "not given"; the empty text by a word, for it cannot be seen."""
    return join_some((text or "empty" for text in texts), len(texts), 8) or "none"


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


def summarise_comparison(comparison: Comparison, *, folded: bool = False) -> SummaryTable:
    """List candidates with their held-out scores; the chosen one is marked."""
    names = comparison.varied
    rows = [
        (
            *(cut(format_setting(point.settings[name])) for name in names),
            nats(point.score),
            _describe_difference(point),
            "chosen" if point == comparison.chosen else "",
        )
        for point in comparison.points[:MOST_ROWS]
    ]
    return SummaryTable(
        f"Compared: {' and '.join(map(name_setting, names))}, by held-out nats per {comparison.unit}",
        (*(f">{name_setting(name)}" for name in names), ">score", ">below the best", ""),
        rows,
        len(comparison.points),
        "comparison.points",
        folded,
    )


def _describe_difference(point: ScoredCandidate) -> str:
    if not point.below_best:
        return "best"
    if point.error is None:
        return decimal(point.below_best, 3)
    return f"{decimal(point.below_best, 3)} ± {decimal(point.error, 2)}"


def _round(value: Setting, digits: int) -> Setting:
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def _draw_row(cells: Sequence[Any]) -> str:
    texts = (f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in cells)
    return f"| {' | '.join(texts)} |"
