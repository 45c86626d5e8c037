"""Summaries of aggregated label logs: classes, workers by skill, tasks to ask again and whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pmflib.arrays import IntArray
from pmflib.displays.cells import count, cut, percent
from pmflib.displays.summary import MOST_ROWS, Summary, SummaryTable

if TYPE_CHECKING:
    from pmflib.crowd.true_labels import Aggregation

LISTED = 50
"""Workers of either end, and tasks, that are listed at most."""

UNCERTAIN = 0.8
"""Labels that are less probable than this are called uncertain."""


def summarise_aggregation(found: Aggregation) -> Summary:
    """How many tasks, classes and labels, workers by skill, and tasks where another label is worth most."""
    log, confidence = found.log, found.confidence
    n_uncertain = int(np.count_nonzero(confidence < UNCERTAIN))
    n_labels = np.diff(log.block.indptr)
    facts = [
        ("labels", f"{count(log.block.n_observed)}, {count(log.quarantine.num_rows)} set aside"),
        ("tasks", f"{count(log.n_tasks)}, of {_describe_range(n_labels)} labels"),
        ("workers", count(log.n_workers)),
        ("method", f"{cut(found.method)}, {count(found.n_passes)} passes"),
        (
            "uncertain",
            f"{count(n_uncertain)} tasks have a label that is less than {percent(UNCERTAIN)} probable",
        ),
    ]
    if log.known is not None:
        facts.append(("known labels", f"{count(int(log.is_known.sum()))} tasks"))
    notes = []
    if found.known_quarantine.num_rows:
        notes.append(
            f"{count(found.known_quarantine.num_rows)} rows of known labels were set aside: see known_quarantine"
        )
    if not found.converged:
        notes.append("The passes did not settle: raise max_passes or tol")
    if log.quarantine.num_rows:
        notes.append(f"{count(log.quarantine.num_rows)} labels were set aside: see log.quarantine")
    tables = (_tabulate_classes(found), *_tabulate_workers(found), _tabulate_tasks(found))
    headline = f"True labels of {count(log.n_tasks)} tasks from {count(log.n_workers)} workers"
    return Summary(headline, tuple(facts), tuple(notes), tables)


def _describe_range(numbers: IntArray) -> str:
    if not numbers.size:
        return "no"
    low, high = int(numbers.min()), int(numbers.max())
    return count(low) if low == high else f"{count(low)} to {count(high)}"


def _tabulate_classes(found: Aggregation) -> SummaryTable:
    log = found.log
    n_tasks = np.bincount(found.codes, minlength=log.n_classes)
    rows = [
        (
            cut(str(log.classes[code].as_py())),
            count(n_tasks[code]),
            percent(n_tasks[code] / max(log.n_tasks, 1)),
        )
        for code in range(min(log.n_classes, MOST_ROWS))
    ]
    return SummaryTable(
        "Classes", ("class", ">tasks", ">share"), rows, log.n_classes, "found.labels"
    )


def _tabulate_workers(found: Aggregation) -> tuple[SummaryTable, ...]:
    """List all workers by skill where they are few, else those of either end."""
    log, workers = found.log, found.workers
    n_labels, skill, error = (
        workers[name].to_numpy() for name in ("n_labels", "skill", "standard_error")
    )
    order = np.argsort(-skill, kind="stable")

    def tabulate(title: str, places: IntArray, n_all: int, folded: bool) -> SummaryTable:
        rows = [
            (
                cut(str(log.workers[int(place)].as_py())),
                percent(float(skill[place])),
                f"± {percent(float(error[place]))}",
                count(n_labels[place]),
            )
            for place in places
        ]
        columns = ("worker", ">skill", ">standard error", ">labels")
        return SummaryTable(title, columns, rows, n_all, "found.workers", folded)

    if log.n_workers <= LISTED:
        return (tabulate("Workers, the best first", order, log.n_workers, False),)
    return (
        tabulate("Workers, the worst first", order[::-1][:LISTED], log.n_workers, False),
        tabulate("Workers, the best first", order[:LISTED], log.n_workers, True),
    )


def _tabulate_tasks(found: Aggregation) -> SummaryTable:
    least = found.ask_again(LISTED).to_pylist()
    rows = [
        (
            cut(str(each["task"])),
            cut(str(each["label"])),
            percent(each["confidence"]),
            count(each["n_labels"]),
            cut("" if each["worker"] is None else str(each["worker"])),
        )
        for each in least
    ]
    return SummaryTable(
        "Tasks where another label is worth most",
        ("task", "label", ">probability", ">labels", "worker to ask"),
        rows,
        found.log.n_tasks,
        f"found.ask_again({len(rows) * 2})",
    )
