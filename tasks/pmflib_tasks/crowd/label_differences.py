"""Differences between the labels of two runs: labels of tasks, skills of workers, shares of classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pmflib.base.display.summary import SummaryTable
from pmflib.base.errors import StoreError
from pmflib.base.texts import fold_text
from pmflib.store.file_digests import check_artefact


@dataclass(frozen=True)
class ChangedTask:
    """A task whose label changed: both labels with their calibrated probabilities."""

    task: str
    label_first: str
    confidence_first: float
    label_second: str
    confidence_second: float


@dataclass(frozen=True)
class ChangedWorker:
    """A worker of two runs: skills and numbers of labels.

    Parameters
    ----------
    worker
        Name.
    skill_first, skill_second
        Probability of a correct label, in each run.
    error
        Standard error of the difference, as if the runs had no label in common.
    labels_first, labels_second
        Number of labels of the worker, in each run.
    """

    worker: str
    skill_first: float
    skill_second: float
    error: float
    labels_first: int
    labels_second: int


@dataclass(frozen=True)
class ClassShare:
    """Share of the tasks with a label, in each run."""

    label: str
    share_first: float
    share_second: float


@dataclass(frozen=True)
class LabelDifference:
    """Differences between the labels of two runs.

    Parameters
    ----------
    n_same, n_changed, n_added, n_removed
        Numbers of tasks of both runs whose label is the same or changed, and of tasks of one run only.
    tasks
        Tasks whose label changed, by falling confidence in the second run.
    workers
        Workers of both runs whose skill changed, by falling change in standard errors.
    n_workers_added, n_workers_removed
        Numbers of workers of one run only.
    classes
        Shares of the classes.
    """

    n_same: int
    n_changed: int
    n_added: int
    n_removed: int
    tasks: list[ChangedTask]
    workers: list[ChangedWorker]
    n_workers_added: int
    n_workers_removed: int
    classes: list[ClassShare]

    def tabulate(self, runs: tuple[str, str]) -> Iterator[SummaryTable]:
        """Build the tables of classes, and of labels and workers that changed."""
        shares = [(each.label, each.share_first, each.share_second) for each in self.classes]
        yield SummaryTable.of_values("Shares of the classes", ("label", *runs), shares)
        title = (
            f"Tasks: {self.n_changed:,} labels changed, {self.n_same:,} did not; {self.n_added:,} tasks were added, "
            f"{self.n_removed:,} removed"
        )
        columns = ("task", runs[0], "confidence", runs[1], "confidence")
        yield SummaryTable.of_values(title, columns, [astuple(each) for each in self.tasks])
        title = f"Workers: {self.n_workers_added:,} were added, {self.n_workers_removed:,} removed"
        skills, labels = ([f"{what}, {run}" for run in runs] for what in ("skill", "labels"))
        names = ("worker", *skills, "+-", *labels)
        yield SummaryTable.of_values(title, names, [astuple(each) for each in self.workers])


def compare_runs(open_both: Callable[..., Any], most: int) -> LabelDifference | None:
    """Compare what two runs of labels made: see `Feature.compare_runs`."""
    tables = open_both("labels", "labels", read_labelled)
    return None if tables is None else compare_labels(tables[0], tables[1], most)


def read_labelled(path: Path) -> tuple[pa.Table, pa.Table]:
    """Read the labels and workers of an artefact of labels.

    Raises
    ------
    StoreError
        If it is damaged.
    """
    check_artefact(path.parent)
    try:
        labels = pq.read_table(path, columns=["task", "label", "confidence"])
        columns = ["worker", "skill", "standard_error", "n_labels"]
        return labels, pq.read_table(path.parent / "workers.parquet", columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"labels {path.parent.name!r} cannot be read ({error})") from error


def compare_labels(
    first: tuple[pa.Table, pa.Table], second: tuple[pa.Table, pa.Table], most: int
) -> LabelDifference:
    """Compare the labels of two runs.

    Parameters
    ----------
    first, second
        Tables from `read_labelled`.
    most
        Maximum number of tasks, and of workers, to list.
    """
    first = _respell(first[0], second[0]), first[1]
    before, after, n_removed, n_added = _match(first[0], second[0], "task")
    changed = pc.not_equal(before["label"], after["label"])
    n_changed = int(pc.sum(changed).as_py() or 0)
    pairs = zip(before.filter(changed).to_pylist(), after.filter(changed).to_pylist(), strict=True)
    tasks = [
        ChangedTask(a["task"], a["label"], a["confidence"], b["label"], b["confidence"])
        for a, b in pairs
    ]
    tasks.sort(key=lambda each: (-each.confidence_second, each.task))
    old, new, n_gone, n_come = _match(first[1], second[1], "worker")
    workers = [
        ChangedWorker(
            a["worker"],
            a["skill"],
            b["skill"],
            float(np.hypot(a["standard_error"], b["standard_error"])),
            a["n_labels"],
            b["n_labels"],
        )
        for a, b in zip(old.to_pylist(), new.to_pylist(), strict=True)
        if a["skill"] != b["skill"]
    ]
    workers.sort(key=lambda each: -abs(each.skill_second - each.skill_first) / (each.error or 1.0))
    return LabelDifference(
        before.num_rows - n_changed,
        n_changed,
        n_added,
        n_removed,
        tasks[:most],
        workers[:most],
        n_come,
        n_gone,
        _share_classes(first[0], second[0]),
    )


def _respell(first: pa.Table, second: pa.Table) -> pa.Table:
    """Write labels that only the first run has as the second run spells them."""
    known, old = (table["label"].unique().drop_null().to_pylist() for table in (second, first))
    spelt = {fold_text(label): label for label in known}
    new = [label if label in known else spelt.get(fold_text(label), label) for label in old]
    places = pc.index_in(first["label"], pa.array(old, first["label"].type))
    place = first.column_names.index("label")
    return first.set_column(place, "label", pa.array(new, first["label"].type).take(places))


def _match(first: pa.Table, second: pa.Table, key: str) -> tuple[pa.Table, pa.Table, int, int]:
    """Join two tables by a key, in the order of the first, and count the rows of each without a match."""
    places = pc.index_in(first[key], second[key])
    shared = pc.is_valid(places)
    before, after = first.filter(shared), second.take(places.drop_null())
    n_shared = before.num_rows
    return before, after, first.num_rows - n_shared, second.num_rows - n_shared


def _share_classes(first: pa.Table, second: pa.Table) -> list[ClassShare]:
    counts = [
        {each["values"]: each["counts"] for each in table["label"].value_counts().to_pylist()}
        for table in (first, second)
    ]
    totals = [max(table.num_rows, 1) for table in (first, second)]
    return [
        ClassShare(label, counts[0].get(label, 0) / totals[0], counts[1].get(label, 0) / totals[1])
        for label in sorted({*counts[0], *counts[1]})
    ]
