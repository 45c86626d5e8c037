"""Tables of what differs between two runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group

from pmflib_flows.tables import format_value, make_table
from pmflib_tasks.guards.label_differences import LabelDifference
from pmflib_tasks.guards.run_differences import (
    FileChanges,
    RunDifference,
    SchemaChanges,
    ValueChange,
)

LABELS_SHOWN = 5
"""Levels of a variable that are listed, at most."""


def make_difference_tables(
    found: RunDifference, numbers: tuple[int, int], top: int
) -> Iterator[Group]:
    """Tables of a difference, in order; parts without a change are left out.

    Parameters
    ----------
    found
        The difference.
    numbers
        Numbers of the two runs.
    top
        Rows of a table that lists changes, at most.
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
        yield from _tabulate_labels(found.labels, runs)
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
    """Values of both runs, and the difference of numbers."""
    rows = []
    for change in changes:
        both = change.first, change.second
        are_numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in both)
        difference = format_value(change.second - change.first) if are_numbers else ""
        rows.append([change.name, *map(_text, both), difference])
    if rows:
        yield make_table(title, ("what", *runs, "difference"), rows)


def _tabulate_labels(found: LabelDifference, runs: tuple[str, str]) -> Iterator[Group]:
    """Tables of labels and workers that have changed."""
    rows = [(each.label, each.share_first, each.share_second) for each in found.classes]
    yield make_table("Shares of the classes", ("label", *runs), rows)
    title = (
        f"Tasks: {found.n_changed:,} labels changed, {found.n_same:,} did not; {found.n_added:,} tasks were added, "
        f"{found.n_removed:,} removed"
    )
    tasks = [
        (
            each.task,
            each.label_first,
            each.confidence_first,
            each.label_second,
            each.confidence_second,
        )
        for each in found.tasks
    ]
    yield make_table(title, ("task", runs[0], "confidence", runs[1], "confidence"), tasks)
    workers = [
        (
            each.worker,
            each.skill_first,
            each.skill_second,
            each.error,
            each.labels_first,
            each.labels_second,
        )
        for each in found.workers
    ]
    title = f"Workers: {found.n_workers_added:,} were added, {found.n_workers_removed:,} removed"
    columns = (
        "worker",
        *(f"skill, {run}" for run in runs),
        "+-",
        *(f"labels, {run}" for run in runs),
    )
    yield make_table(title, columns, workers)


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
