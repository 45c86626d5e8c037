"""What a person sees: progress while a flow runs, tables at its end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column, Table
from rich.text import Text

from tasks.curves import COLUMNS
from tasks.stage import Progress as StageProgress
from tasks.stage import listen

LINE_SECONDS = 30.0
"""Between lines on a stage that is under way, where there is no terminal."""

VARIABLES_SHOWN = 8
"""Of the variables that had values which are no level."""

ROWS = {
    "samples": "samples",
    "observed": "observed answers",
    "rows_in": "rows read",
    "rows_encoded": "rows used",
    "rows_quarantined": "rows in quarantine",
}


@contextmanager
def show_progress(console: Console) -> Iterator[None]:
    """Draw a bar for every stage while the context lasts; plain lines where the console is no terminal."""
    if not console.is_terminal:
        with listen(_LinePrinter(console)):
            yield
        return
    columns = (
        TextColumn("{task.description:>16}"),
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
    with Progress(*columns, console=console, expand=True) as bars, listen(_BarDrawer(bars)):
        yield


class _LinePrinter:
    """A line when a stage is done, and in a long one every half minute: logs of scheduled runs stay short."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began: dict[str, float] = {}
        self._spoke = time.monotonic()

    def __call__(self, progress: StageProgress) -> None:
        now = time.monotonic()
        began = self._began.setdefault(progress.stage, now)
        done = progress.done >= progress.total
        if not done and now < max(began, self._spoke) + LINE_SECONDS:
            return
        line = f"{progress.stage}: {progress.done:,} of {progress.total:,}, {now - began:,.0f} s"
        text = f", {progress.text}" if progress.text else ""
        self._console.print(line + text, markup=False, highlight=False, soft_wrap=True)
        self._spoke = now
        if done:
            # a stage may come again, as when the live model is evaluated
            del self._began[progress.stage]


class _BarDrawer:
    """A bar per stage."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._known: dict[str, TaskID] = {}

    def __call__(self, progress: StageProgress) -> None:
        if progress.stage not in self._known:
            self._known[progress.stage] = self._bars.add_task(progress.stage, total=None, text="")
        # of a single unit nothing can be seen but that it is under way: the bar moves to and fro
        known = progress.total > 1 or progress.done
        self._bars.update(
            self._known[progress.stage],
            completed=progress.done,
            total=progress.total if known else None,
            text=progress.text,
        )


def make_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Group:
    """Table of values for a person under its title; numbers are shortened and set to the right."""
    table = Table()
    for place, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[place], int | float) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        # texts come from the data: a "[" in them is no markup
        table.add_row(*(Text(format_value(value)) for value in row))
    # a title of the table itself would be cut to the table's width
    return Group("", Text(title, style="bold"), table)


def format_value(value: Any) -> str:
    """Text of a value: thousands are grouped, fractions have six digits."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() else f"{value:.6g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {format_value(item)}" for key, item in value.items())
    return str(value)


def make_facts_tables(facts: Mapping[str, Any]) -> list[Group]:
    """Tables of a run's facts: rows, model, scores against the baseline."""
    rows, model, scores = facts["rows"], facts["model"], facts["scores"]
    counted = [(label, rows[key]) for key, label in ROWS.items() if key in rows]
    counted += [(f"  {reason}", n) for reason, n in rows.get("reasons", {}).items()]
    if made_missing := rows.get("cells_made_missing"):
        most = dict(list(made_missing.items())[:VARIABLES_SHOWN])
        counted.append(("unknown levels taken as missing", most))
    tables = [make_table("Rows", ("what", "how many"), counted)]
    known = ("method", "rank", "passes", "best_pass", "converged")
    described = [(k, model[k]) for k in known]
    if "rank" in facts:
        described += [("why this rank", reason) for reason in facts["rank"]["reasons"]]
    described += [("note", note) for note in model.get("notes", ())]
    described += [("warning", text) for text in facts.get("warnings", ())]
    tables.append(make_table("Model", ("what", "value"), described))
    for curve in facts.get("rank", {}).get("curves", ()):
        tables.append(make_table(curve["title"], COLUMNS, curve["rows"]))
    if scores.get("hidden_cells"):
        measures = [k for k in scores if f"baseline_{k}" in scores]
        compared = [(k, scores[k], scores[f"baseline_{k}"]) for k in measures]
        title = f"Hidden answers of held-out samples ({scores['hidden_cells']:,.0f})"
        tables.append(make_table(title, ("measure", "model", "single variables"), compared))
    return tables


def make_labels_table(facts: Mapping[str, Any]) -> Group:
    """Table of what was found in a label log."""
    known = (
        "method",
        "em",
        "tasks",
        "labels",
        "workers",
        "classes",
        "prior",
        "passes",
        "converged",
    )
    lists = {key: ", ".join(map(format_value, facts[key])) for key in ("classes", "prior")}
    rows = [(key, lists.get(key, facts[key])) for key in known if key in facts]
    return make_table("Labels", ("what", "value"), rows)
