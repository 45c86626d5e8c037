"""Summaries as HTML, for notebooks in light and dark colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from pmflib.displays.summary import FIRST_ROWS, Summary, SummaryTable
from pmflib.safe_text import show_text

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


def write_html(summary: Summary) -> str:
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
    return escape(show_text(text))
