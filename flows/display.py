"""What a person sees: progress while a flow runs, tables at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from tasks.stage import Progress as StageProgress
from tasks.stage import listen


@contextmanager
def show_progress(console: Console) -> Iterator[None]:
    """Draw a bar for every stage while the context lasts; plain lines where the console is no terminal."""
    if not console.is_terminal:
        with listen(_LinePrinter(console)):
            yield
        return
    columns = (
        TextColumn("{task.description:>16}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=console) as bars, listen(_BarDrawer(bars)):
        yield


class _LinePrinter:
    """A line when a stage starts, and when it is done: logs of scheduled runs stay short."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: str | None = None

    def __call__(self, progress: StageProgress) -> None:
        line = f"{progress.stage}: {progress.done} of {progress.total}"
        done = progress.done >= progress.total
        if done or progress.stage != self._last:
            self._console.print(
                f"{line}  {progress.text}".rstrip(), highlight=False, soft_wrap=True
            )
        self._last = progress.stage


class _BarDrawer:
    """A bar per stage."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._known: dict[str, TaskID] = {}

    def __call__(self, progress: StageProgress) -> None:
        if progress.stage not in self._known:
            self._known[progress.stage] = self._bars.add_task(progress.stage, text="")
        self._bars.update(
            self._known[progress.stage],
            completed=progress.done,
            total=progress.total or None,
            text=progress.text,
        )


def make_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """Table of values for a person; numbers are shortened and set to the right."""
    table = Table(title=Text(title, no_wrap=True), title_justify="left")
    for place, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[place], int | float) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(format_value, row))
    return table


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


def make_facts_tables(facts: Mapping[str, Any]) -> list[Table]:
    """Tables of a run's facts: rows, model, scores against the baseline."""
    rows, model, scores = facts["rows"], facts["model"], facts["scores"]
    wanted = ("rows_in", "rows_encoded", "rows_quarantined", "reasons", "samples", "observed")
    tables = [make_table("Rows", ("what", "how many"), [(k, rows[k]) for k in wanted if k in rows])]
    known = ("method", "rank", "passes", "best_pass", "converged")
    tables.append(make_table("Model", ("what", "value"), [(k, model[k]) for k in known]))
    if scores.get("hidden_cells"):
        measures = [k for k in scores if f"baseline_{k}" in scores]
        compared = [(k, scores[k], scores[f"baseline_{k}"]) for k in measures]
        title = f"Hidden answers of held-out samples ({scores['hidden_cells']:,.0f})"
        tables.append(make_table(title, ("measure", "model", "single variables"), compared))
    return tables
