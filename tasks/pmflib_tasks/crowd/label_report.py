"""Report of a label log: classes, workers and their confusion, and what the page of its run shows of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq

from pmflib.apps.crowd.confidence import describe_confidence
from pmflib.apps.crowd.stored.summaries import LabelSummary
from pmflib.apps.crowd.summaries import plot_accuracies
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.display.drawing import plot_confusion_matrix
from pmflib.store.artefacts import Reference, Store
from pmflib.store.file_digests import check_file
from pmflib.store.run_records import RunRecord
from pmflib_tasks.sections import CONFUSED, Drawing, ReportPart, Section
from pmflib_tasks.wording import as_count, as_percent

WORKERS = "workers.parquet"
"""Table of the workers in an artefact of labels."""
WORKERS_LISTED = 1000
"""Maximum number of workers listed: those with the most labels."""


@dataclass(frozen=True, eq=False)
class LabelReport:
    """Results of a label log.

    Parameters
    ----------
    summary
        Summary in the record of the run.
    workers
        Names of the workers.
    n_labels
        int64 of shape (n_workers,): number of labels of each worker.
    accuracy
        float64 of shape (n_workers,): probability that a worker labels a random task correctly.
    confusion
        float64 of shape (n_classes, n_classes): PMF of the label (second axis) by true class (first), mean over all
        workers, weighted by their numbers of labels.
    """

    summary: LabelSummary
    workers: list[str]
    n_labels: IntArray
    accuracy: FloatArray
    confusion: FloatArray

    @property
    def classes(self) -> list[tuple[str, float]]:
        """Classes with their shares of the tasks."""
        return list(zip(self.summary.classes, self.summary.prior, strict=True))

    @property
    def chance(self) -> float:
        """Accuracy of a constant guess of the most frequent class."""
        return float(max(self.summary.prior, default=0.0))

    def list_workers(self) -> list[tuple[str, int, float]]:
        """List the workers with the most labels: name, number of labels, accuracy."""
        order = np.argsort(-self.n_labels, kind="stable")[:WORKERS_LISTED].tolist()
        return [
            (self.workers[each], int(self.n_labels[each]), float(self.accuracy[each]))
            for each in order
        ]


def gather_labels(store: Store, labels: Reference, summary: LabelSummary) -> LabelReport:
    """Gather the results of a label log.

    Parameters
    ----------
    store
        The store.
    labels
        Artefact of the labels.
    summary
        Summary from the facts of the run.

    Raises
    ------
    StoreError
        If the artefact is missing or damaged.
    """
    path = store.locate(labels) / WORKERS
    check_file(path)
    table = pq.read_table(path)
    classes = summary.classes
    n_labels = table.column("n_labels").to_numpy()
    total = max(int(n_labels.sum()), 1)
    confusion = np.array(
        [
            [
                float((table.column(f"probability.{given}|{true}").to_numpy() * n_labels).sum())
                for given in classes
            ]
            for true in classes
        ]
    ).reshape(len(classes), len(classes))
    return LabelReport(
        summary,
        [str(each) for each in table.column("worker").to_pylist()],
        n_labels,
        table.column("accuracy").to_numpy(),
        confusion / total,
    )


def report_labels(store: Store, record: RunRecord) -> ReportPart | None:
    """Report on the labels of a run; None if it has none.

    Raises
    ------
    StoreError
        If their artefact is missing or damaged.
    """
    if "labels" not in record.stages:
        return None
    made = store.find(record.stages["labels"].identity)
    # records do not name tasks and workers
    summary = LabelSummary.find({**record.facts, **({} if made is None else made.summary)})
    if summary is None:
        return None
    found = gather_labels(store, record.stages["labels"], summary)
    alpha = "\N{EN DASH}" if summary.alpha is None else f"{summary.alpha:.2f}"
    return ReportPart(
        tuple(_list_sections(found)),
        tuple(_draw_labels(found)),
        tuple(_say_labels(found)),
        tuple(_list_troubles(summary)),
        (
            ("tasks", f"{summary.tasks:,}", as_count(summary.labels, "label")),
            (
                "workers",
                f"{len(found.workers):,}",
                f"{len(summary.suspicious_workers)} to look at",
            ),
            ("agreement", alpha, "Krippendorff's alpha"),
        ),
    )


def _list_sections(found: LabelReport) -> Iterator[Section]:
    summary = found.summary
    classes = [(name, as_percent(share, 1)) for name, share in found.classes]
    yield Section.of_texts("labels", "Classes", ("class", ">share of the tasks"), classes)
    if summary.ask_again:
        asked = [
            (
                each["task"],
                each["label"],
                as_percent(each["confidence"], 1),
                f"{each['n_labels']:,}",
                each.get("worker") or "",
            )
            for each in summary.ask_again
        ]
        columns = ("task", "label", ">probability", ">labels", "ask")
        title = "Tasks to ask again: one more label is worth most where the label is least certain"
        yield Section.of_texts("labels", title, columns, asked)
    right = "a worker's accuracy is the probability of labelling a task drawn at random right"
    yield Section("workers", sentences=(right,), figures=(("skills", ""),))
    if summary.suspicious_workers:
        suspects = [
            (
                str(each["worker"]),
                each["reason"],
                f"{each['n_labels']:,}",
                as_percent(each["right"]),
                as_percent(each["by_chance"]),
            )
            for each in summary.suspicious_workers
        ]
        title = "Workers worse than chance, always the same, or with the mistakes of another"
        columns = ("worker", "why", ">labels", ">right", ">by chance")
        yield Section.of_texts("workers", title, columns, suspects)
    mean = (
        "True class by row, label given by column, per cent of the row: mean over the workers, each as often as it "
        "gave labels."
    )
    yield Section("workers", figures=(("worker-confusion", mean),))
    listed = [(name, f"{n:,}", as_percent(share)) for name, n, share in found.list_workers()]
    all_or_first = "All" if len(listed) == len(found.workers) else "The first"
    title = f"{all_or_first} {as_count(len(listed), 'worker')}"
    yield Section.of_texts(
        "workers", title, ("worker", ">labels", ">accuracy"), listed, folded=True
    )


def _list_troubles(summary: LabelSummary) -> Iterator[str]:
    if suspects := summary.suspicious_workers:
        names = ", ".join(str(each["worker"]) for each in suspects[:3])
        more = f" and {len(suspects) - 3} more" if suspects[3:] else ""
        yield (
            f"{as_count(len(suspects), 'worker')} worse than chance, always the same, or with another's mistakes: "
            f"{names}{more}."
        )
    if not summary.converged:
        yield "The passes had not converged: raise em.max_passes."


def _say_labels(found: LabelReport) -> Iterator[str]:
    summary = found.summary
    yield (
        f"It found labels for {as_count(summary.tasks, 'task')}, from {as_count(summary.labels, 'label')} that "
        f"{as_count(len(found.workers), 'worker')} gave."
    )
    if known := summary.known:
        yield f"Of {as_count(known, 'task')} the true label was known, and is not counted as found."
    if (alpha := summary.alpha) is not None:
        kind = "little" if alpha < 0.2 else "some" if alpha < 0.67 else "good"
        yield f"There is {kind} agreement between workers (Krippendorff's alpha {alpha:.2f}; 1 is all, 0 is chance)."
    if (same := summary.majority_agreement) is not None:
        yield f"{as_percent(same)} of the labels are those of the majority vote."
    if summary.confidence is not None:
        yield f"{describe_confidence(summary.confidence, summary.known or 0)}."
    if found.workers:
        yield (
            f"The median worker is right {as_percent(float(np.median(found.accuracy)))} of the time; always giving the "
            f"most frequent class would be right {as_percent(found.chance)}."
        )


def _draw_labels(found: LabelReport) -> Iterator[Drawing]:
    names = [name for name, _ in found.classes]
    yield Drawing(
        "skills",
        "How good the workers are",
        f"Accuracy of {as_count(len(found.workers), 'worker')} by how many labels each gave; always giving the most "
        f"frequent class would be right {as_percent(found.chance)}.",
        lambda ax: plot_accuracies(found.n_labels, found.accuracy, found.chance, ax=ax),
        (6.6, 3.4),
    )
    if len(names) <= CONFUSED:
        yield Drawing(
            "worker-confusion",
            "Which labels workers give to tasks of each class",
            f"True class by row and label by column, mean over {as_count(len(found.workers), 'worker')}.",
            lambda ax: plot_confusion_matrix(
                found.confusion, names, rows="true class", columns="label given", ax=ax
            ),
            (3.0 + 0.7 * len(names), 1.4 + 0.42 * len(names)),
        )
