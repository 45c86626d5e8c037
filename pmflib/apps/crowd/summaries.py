"""Summaries and figures of aggregated label logs: classes, workers, confusion matrices, tasks to ask again."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.apps.crowd.label_log import LabelLog
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.display.drawing import (
    FAINT,
    MAIN,
    Axes,
    clear_frame,
    open_axes,
    plot_confusion_matrix,
    scale_by_logs,
    write_text,
)
from pmflib.base.display.summary import MOST_ROWS, Summary, SummaryTable, cut, format_count, percent

LISTED = 50
"""Limit of the tasks, and of the best and the worst workers, that are listed."""

UNCERTAIN = 0.8
"""Labels with a smaller probability are uncertain."""


def summarise_labels(
    log: LabelLog,
    labels: pa.Table,
    workers: pa.Table,
    asked: pa.Table,
    passes: tuple[str, int, bool],
    known_rejected: int,
) -> Summary:
    """Summarise an aggregated log: sizes, classes, workers by skill, and tasks where another label would help most.

    Parameters
    ----------
    log
        The labels that workers gave.
    labels, workers
        Tables of `pmflib.apps.crowd.true_labels.Aggregation`.
    asked
        Tasks where another label would help most, at most ``LISTED``, as from `Aggregation.ask_again`.
    passes
        Name of the method, number of its passes, and whether they converged.
    known_rejected
        Number of rows of known labels that were set aside.
    """
    method, n_passes, converged = passes
    n_uncertain = int(np.count_nonzero(labels["confidence"].to_numpy() < UNCERTAIN))
    n_labels = np.diff(log.block.indptr)
    facts = [
        (
            "labels",
            f"{format_count(log.block.n_observed)}, {format_count(log.quarantine.num_rows)} set aside",
        ),
        ("tasks", f"{format_count(log.n_tasks)}, of {_describe_range(n_labels)} labels"),
        ("workers", format_count(log.n_workers)),
        ("method", f"{cut(method)}, {format_count(n_passes)} passes"),
        (
            "uncertain",
            f"{format_count(n_uncertain)} tasks have a label with a probability below {percent(UNCERTAIN)}",
        ),
    ]
    if log.known is not None:
        facts.append(("known labels", f"{format_count(int(log.is_known.sum()))} tasks"))
    notes = []
    if known_rejected:
        notes.append(
            f"{format_count(known_rejected)} rows of known labels were set aside: see known_quarantine"
        )
    if not converged:
        notes.append("The passes did not converge: raise max_passes or tol")
    if log.quarantine.num_rows:
        notes.append(
            f"{format_count(log.quarantine.num_rows)} labels were set aside: see log.quarantine"
        )
    tables = (
        _tabulate_classes(log, labels),
        *_tabulate_workers(log, workers),
        _tabulate_tasks(asked, log.n_tasks),
    )
    headline = f"True labels of {format_count(log.n_tasks)} tasks from {format_count(log.n_workers)} workers"
    return Summary(headline, tuple(facts), tuple(notes), tables)


def _describe_range(numbers: IntArray) -> str:
    if not numbers.size:
        return "no"
    low, high = int(numbers.min()), int(numbers.max())
    return format_count(low) if low == high else f"{format_count(low)} to {format_count(high)}"


def _tabulate_classes(log: LabelLog, labels: pa.Table) -> SummaryTable:
    codes = pc.index_in(labels["label"].drop_null(), log.classes).to_numpy()
    n_tasks = np.bincount(codes, minlength=log.n_classes)
    rows = [
        (
            cut(str(log.classes[code].as_py())),
            format_count(n_tasks[code]),
            percent(n_tasks[code] / max(log.n_tasks, 1)),
        )
        for code in range(min(log.n_classes, MOST_ROWS))
    ]
    return SummaryTable(
        "Classes", ("class", ">tasks", ">share"), rows, log.n_classes, "found.labels"
    )


def _tabulate_workers(log: LabelLog, workers: pa.Table) -> tuple[SummaryTable, ...]:
    """List all workers by skill, or the best and the worst if there are many."""
    n_labels, skill, error = (
        workers[name].to_numpy() for name in ("n_labels", "skill", "standard_error")
    )
    order = np.argsort(-skill, kind="stable")

    def tabulate(title: str, indices: IntArray, n_all: int, folded: bool) -> SummaryTable:
        rows = [
            (
                cut(str(log.workers[int(index)].as_py())),
                percent(float(skill[index])),
                f"± {percent(float(error[index]))}",
                format_count(n_labels[index]),
            )
            for index in indices
        ]
        columns = ("worker", ">skill", ">standard error", ">labels")
        return SummaryTable(title, columns, rows, n_all, "found.workers", folded)

    if log.n_workers <= LISTED:
        return (tabulate("Workers, the best first", order, log.n_workers, False),)
    return (
        tabulate("Workers, the worst first", order[::-1][:LISTED], log.n_workers, False),
        tabulate("Workers, the best first", order[:LISTED], log.n_workers, True),
    )


def _tabulate_tasks(asked: pa.Table, n_tasks: int) -> SummaryTable:
    rows = [
        (
            cut(str(each["task"])),
            cut("" if each["label"] is None else str(each["label"])),
            percent(math.nan if each["confidence"] is None else each["confidence"]),
            format_count(each["n_labels"]),
            cut("" if each["worker"] is None else str(each["worker"])),
        )
        for each in asked.to_pylist()
    ]
    return SummaryTable(
        "Tasks where another label would help most",
        ("task", "label", ">probability", ">labels", "worker to ask"),
        rows,
        n_tasks,
        f"found.ask_again({len(rows) * 2})",
    )


def plot_confusion(
    worker: object,
    confusion: FloatArray,
    classes: Sequence[object],
    accuracy: float,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw the confusion matrix of a worker: the labels that the worker gives to tasks of each class.

    Parameters
    ----------
    worker
        Name of the worker.
    confusion
        float64 of shape (n_classes, n_classes): PMF of the worker's labels (first axis) by true class (second).
    classes
        Names of the classes.
    accuracy
        Probability that the worker labels a random task correctly.
    ax
        Axes to draw on; None makes new ones.

    Returns
    -------
    The Axes: a row per true class, a column per label, per cent of the row.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    """
    ax = plot_confusion_matrix(
        confusion.T, classes, rows="true class", columns="label given", ax=ax
    )
    ax.set_title(
        f"{write_text(worker)}: accuracy {100 * accuracy:.0f} %", loc="left", parse_math=False
    )
    return ax


def plot_accuracies(
    n_labels: IntArray, accuracy: FloatArray, chance: float, *, ax: Axes | None = None
) -> Axes:
    """Draw the accuracy of workers against their number of labels.

    Parameters
    ----------
    n_labels
        int64 of shape (n_workers,).
    accuracy
        float64 of shape (n_workers,), in [0, 1].
    chance
        Accuracy of always giving the most frequent class, in [0, 1]: a dotted line.
    ax
        Axes to draw on; None makes new ones.

    Returns
    -------
    The Axes: a point per worker.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    """
    ax = open_axes(ax, (6.0, 3.6))
    ax.plot(n_labels, 100 * accuracy, "o", ms=4, color=MAIN, alpha=0.7)
    label = f"always the most frequent class: {100 * chance:.0f} %"
    ax.axhline(100 * chance, color=FAINT, ls=":", label=label)
    if n_labels.size and n_labels.max() > 30 * max(n_labels.min(), 1):
        scale_by_logs(ax)
    ax.set(xlabel="labels given", ylabel="accuracy, %", ylim=(-2, 102))
    ax.legend(frameon=False, loc="lower right")
    return clear_frame(ax)
