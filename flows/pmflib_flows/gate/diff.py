"""The command `pmf diff`, which compares two runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pmflib.base.display.summary import format_value
from pmflib_flows.commands.history import find_recorded_name, find_run
from pmflib_flows.console import AsJson, ConfigPath, load_pipeline, out, print_json
from pmflib_flows.tables import make_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Group

    from pmflib_tasks.file_changes import FileChanges
    from pmflib_tasks.gate.run_differences import (
        RunDifference,
        SchemaChanges,
        ValueChange,
    )

HEAD = ("number", "action", "outcome", "reason", "started", "ended", "live")
"""Keys of a compared run in JSON."""
LABELS_SHOWN = 5
"""Maximum number of levels listed per variable."""

Run = Annotated[str, typer.Argument(help="Number of a run, as `pmf history` shows it; live; last.")]


def diff(
    config: ConfigPath,
    first: Run,
    second: Run,
    top: Annotated[
        int,
        typer.Option(min=1, help="Maximum number of variables, pairs, levels and files to show."),
    ] = 10,
    as_json: AsJson = False,
) -> None:
    """Compare two runs: rows, files, schema, options, distributions, pairs, model and scores."""
    from pmflib.store.lineage import list_collected_runs
    from pmflib_tasks.gate.run_differences import compare_runs
    from pmflib_tasks.stage import open_store

    checked = load_pipeline(config)
    store = open_store(checked)
    name = find_recorded_name(store, checked.name)
    runs = [find_run(store, name, each) for each in (first, second)]
    collected = list_collected_runs(store).get(name, set())
    found = compare_runs(store, runs[0], runs[1], collected=collected, most_pairs=top)
    if as_json:
        heads = [
            {key: value for key, value in run.to_json().items() if key in HEAD} for run in runs
        ]
        print_json({"first": heads[0], "second": heads[1], **found.to_json()})
        return
    for run in runs:
        when = run.started[:19].replace("T", " ")
        out.print(f"run {run.number}, {when}: {run.reason}")
    for table in _make_difference_tables(found, (runs[0].number, runs[1].number), top):
        out.print(table)
    for sentence in found.missing:
        out.print(f"not compared: {sentence}")


def _make_difference_tables(
    found: RunDifference, numbers: tuple[int, int], top: int
) -> Iterator[Group]:
    """Build the tables of a difference, in order, omitting parts without changes.

    Parameters
    ----------
    found
        The difference.
    numbers
        Numbers of the two runs.
    top
        Maximum number of rows of a table of changes.
    """
    runs = f"run {numbers[0]}", f"run {numbers[1]}"
    yield from _tabulate_files(found.files, top)
    yield from _tabulate_values("Rows", found.rows, runs)
    yield from _tabulate_values("Options", found.options, runs)
    yield from _tabulate_values("Versions", found.versions, runs)
    if found.schema is not None:
        yield from _tabulate_schema(found.schema, top)
    changed = [change for change in found.variables or () if change.total_variation > 0]
    if changed:
        rows = [
            (c.variable, c.total_variation, c.by_chance, c.psi, c.n_first, c.n_second)
            for c in changed[:top]
        ]
        title = f"Distributions: {len(changed)} of {len(found.variables or ())} variables changed"
        yield make_table(
            title, ("variable", "total variation", "by chance", "PSI, nats", *_samples(runs)), rows
        )
    pairs = [change for change in found.pairs or () if change.total_variation > 0]
    if pairs:
        moved = [
            (*p.variables, p.total_variation, p.by_chance, p.n_first, p.n_second)
            for p in pairs[:top]
        ]
        title = f"Pairs: the largest changes of {found.n_pairs:,}"
        columns = ("variable", "and", "total variation", "by chance", *_samples(runs))
        yield make_table(title, columns, moved)
    yield from _tabulate_values("Model", found.model or [], runs)
    if found.labels is not None:
        yield from (make_table(*each) for each in found.labels.tabulate(runs))
    if states := found.states:
        listed = [
            [
                _text(value)
                for value in (
                    s.first,
                    s.second,
                    s.prior_first,
                    s.prior_second,
                    s.mean_variation,
                    s.variable,
                    s.variation,
                )
            ]
            for s in states[:top]
        ]
        yield make_table(
            f"Latent states, matched ({len(states)})",
            (
                *(f"state in {run}" for run in runs),
                *(f"prior in {run}" for run in runs),
                "total variation",
                "most changed variable",
                "its variation",
            ),
            listed,
        )
    yield from _tabulate_values("Scores", found.scores, runs)


def _samples(runs: Sequence[str]) -> list[str]:
    return [f"samples of {run}" for run in runs]


def _text(value: Any) -> str:
    return "" if value is None else format_value(value)


def _tabulate_values(
    title: str, changes: Sequence[ValueChange], runs: Sequence[str]
) -> Iterator[Group]:
    """Build a table of the values of both runs, and their difference if they are numbers."""
    rows = []
    for change in changes:
        both = change.first, change.second
        are_numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in both)
        difference = format_value(change.second - change.first) if are_numbers else ""
        rows.append([change.name, *map(_text, both), difference])
    if rows:
        yield make_table(title, ("what", *runs, "difference"), rows)


def _tabulate_files(files: FileChanges, top: int) -> Iterator[Group]:
    rows = [("added", file.name, "", _text(file.bytes)) for file in files.added]
    rows += [("removed", file.name, _text(file.bytes), "") for file in files.removed]
    rows += [
        ("changed", file.name, _text(file.bytes_first), _text(file.bytes_second))
        for file in files.changed
    ]
    if rows:
        title = f"Files: {len(rows)} differ, {files.n_same} are the same"
        yield make_table(title, ("what", "file", "bytes before", "bytes after"), rows[:top])


def _tabulate_schema(schema: SchemaChanges, top: int) -> Iterator[Group]:
    rows = [("variable added", name, "") for name in schema.added]
    rows += [("variable removed", name, "") for name in schema.removed]
    for change in schema.changed:
        for what in ("levels_added", "levels_removed"):
            if levels := getattr(change, what):
                more = ", ..." if levels[LABELS_SHOWN:] else ""
                text = ", ".join(levels[:LABELS_SHOWN]) + more
                rows.append((what.replace("_", " "), change.variable, text))
        for what in ("order", "values", "edges", "missing"):
            if getattr(change, f"{what}_changed"):
                rows.append((f"{what} changed", change.variable, ""))
    if rows:
        yield make_table(f"Schema: {len(rows)} changes", ("what", "variable", "levels"), rows[:top])
