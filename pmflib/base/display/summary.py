"""Summaries and tables, and their renderers: text, HTML, Markdown, tables of Rich."""

from __future__ import annotations

import io
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from pmflib.base.texts import show_text

if TYPE_CHECKING:
    import numpy as np
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from pmflib.base.comparison import Comparison, ScoredCandidate


FIRST_ROWS = 10
"""Number of rows of a table that are shown at first."""

MOST_ROWS = 200
"""Maximum number of rows of a table in HTML, which a notebook saves in its file."""

DIGITS = 12
"""Digits of a digest that identify an artefact to people; `pmf log` takes them."""

LEAST_WIDTH = 40
"""Minimum width of text, in characters."""

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
"""Style sheet; colours are inherited from the page, which may be dark or light."""


@dataclass(frozen=True)
class SummaryTable:
    """A table of texts.

    Parameters
    ----------
    title
        Title.
    columns
        Names of the columns; a leading ``>`` aligns a column to the right, and is not shown.
    rows
        Cells, a text per column.
    n_all
        Total number of rows, of which ``rows`` are the first.
    more
        Where to find the other rows, such as ``"result.workers"``.
    folded
        Whether a notebook shows only the title until the table is opened.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    n_all: int
    more: str = ""
    folded: bool = False

    @classmethod
    def of_values(
        cls, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> SummaryTable:
        """Build a table from values, with `format_value`; columns of numbers are aligned to the right."""
        heads = [
            f">{name}" if rows and all(isinstance(row[j], int | float) for row in rows) else name
            for j, name in enumerate(columns)
        ]
        texts = [tuple(map(format_value, row)) for row in rows]
        return cls(title, tuple(heads), texts, len(texts))

    def count_rest(self, n_shown: int) -> str:
        """Describe how many rows are not shown, and where they are; empty if all are shown."""
        n_more = self.n_all - n_shown
        if n_more <= 0:
            return ""
        return f"{n_more:,} more" + (f": {self.more}" if self.more else "")

    def fill(self, shown: Table, most: int | None = None, *, wrap_numbers: bool = True) -> Table:
        """Add the columns and at most ``most`` rows to a table of Rich, every text escaped."""
        for name in self.columns:
            right = name.startswith(">")
            shown.add_column(
                _wrap(name.removeprefix(">")),
                justify="right" if right else "left",
                overflow="fold",
                no_wrap=right and not wrap_numbers,
            )
        for row in self.rows[:most]:
            shown.add_row(*map(_wrap, row))
        return shown

    def to_markdown(self) -> str:
        """Write all rows as a table in Markdown, without the title."""
        marks = ["---:" if name.startswith(">") else ":---" for name in self.columns]
        heads = [name.removeprefix(">") for name in self.columns]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, marks, *self.rows))


@dataclass(frozen=True)
class Summary:
    """A short summary of an object.

    ``print`` and the prompt show text, a notebook shows HTML. Both escape texts of the data and have bounded size.

    Parameters
    ----------
    headline
        One-line description.
    facts
        Names and values, in order.
    notes
        Caveats, as sentences.
    tables
        Tables, the most important first.
    """

    headline: str
    facts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    tables: tuple[SummaryTable, ...] = ()

    def to_text(self, width: int | None = None) -> str:
        """Render as text in lines of at most ``width`` characters, by default the width of the terminal."""
        return _write_text(self, width)

    def to_html(self) -> str:
        """Render as an HTML element without scripts, colours or external resources."""
        return _write_html(self)

    def __repr__(self) -> str:
        """Render as text."""
        return self.to_text()

    def _repr_html_(self) -> str:
        return self.to_html()


class Summarised:
    """An object whose representation in notebooks is its summary."""

    def summary(self) -> Summary:
        """Summarise the object: text in a terminal, HTML in a notebook, of bounded size."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return self.summary().to_html()


def _write_text(summary: Summary, width: int | None = None) -> str:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

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
        style = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
        console.print(table.fill(style, FIRST_ROWS, wrap_numbers=False))
        if rest := table.count_rest(min(len(table.rows), FIRST_ROWS)):
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


def _wrap(text: str) -> Text:
    from rich.text import Text

    return Text(show_text(text))


def _write_html(summary: Summary) -> str:
    """Write a summary as one HTML element, every text escaped."""
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
    """Write a table with its first rows; the rest can be unfolded."""
    rows = table.rows[:MOST_ROWS]
    if table.folded:
        return _fold(table.title, _write_rows(table, rows) + _write_rest(table))
    first, others = rows[:FIRST_ROWS], rows[FIRST_ROWS:]
    html = _write_rows(table, first, table.title)
    if others:
        text = f"{len(others):,} more of {table.n_all:,}"
        html += _fold(text, _write_rows(table, others) + _write_rest(table))
    else:
        html += _write_rest(table)
    return html


def _write_rest(table: SummaryTable) -> str:
    rest = table.count_rest(min(len(table.rows), MOST_ROWS))
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
    """Escape text of the data for HTML, control and direction characters included."""
    from html import escape

    return escape(show_text(text))


LONGEST = 48
"""Maximum number of characters shown of a text of the data."""


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


def format_count(number: int | np.integer[Any]) -> str:
    """Format an integer with grouped thousands."""
    return f"{int(number):,}"


def percent(share: float) -> str:
    """Format a share with at most three digits; only exact shares are shown as 0 % or 100 %.

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
    """Format a number with some significant digits."""
    return "unknown" if math.isnan(number) else f"{number:,.{digits}g}"


def nats(number: float) -> str:
    """Format a log-likelihood with four decimals, enough to compare models."""
    return f"{number:.4f}"


def format_seconds(seconds: float) -> str:
    """Format a time: 42 s, 7 min, 3.5 h, 2.1 days."""
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 5970:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def cut(text: str, longest: int = LONGEST) -> str:
    """Shorten a long text of the data."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def join_some(texts: Iterable[str], n_all: int, n_shown: int = 6) -> str:
    """Join the first of many texts, and count the rest.

    Examples
    --------
    >>> join_some(["a", "b", "c"], 3, 2)
    'a, b, … (1 more)'
    """
    shown = [cut(text) for text in islice(texts, n_shown)]
    more = n_all - len(shown)
    return ", ".join(shown) + (f", … ({more:,} more)" if more > 0 else "")


def name_missing(texts: Sequence[str]) -> str:
    """List texts that mean "not given"; the empty text is shown as a word."""
    return join_some((text or "empty" for text in texts), len(texts), 8) or "none"


def tabulate_comparison(comparison: Comparison, *, folded: bool = False) -> SummaryTable:
    """Tabulate the candidates of a comparison with their held-out scores; the chosen one is marked."""
    from pmflib.base.comparison import format_setting, name_setting  # loads NumPy

    names = comparison.varied
    rows = [
        (
            *(cut(format_setting(point.settings[name])) for name in names),
            nats(point.score),
            _describe_difference(point),
            "chosen" if point == comparison.chosen else "",
        )
        for point in comparison.points
    ]
    compared = " and ".join(map(name_setting, names))
    return SummaryTable(
        f"Held-out log-likelihood by {compared}, nats per {comparison.unit}",
        (*(f">{name_setting(name)}" for name in names), ">score", ">below the best", ""),
        rows,
        len(rows),
        "comparison.points",
        folded,
    )


def _describe_difference(point: ScoredCandidate) -> str:
    if not point.below_best:
        return "best"
    if point.error is None:
        return decimal(point.below_best, 3)
    return f"{decimal(point.below_best, 3)} ± {decimal(point.error, 2)}"
