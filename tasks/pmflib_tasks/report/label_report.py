"""What was found in a label log: classes, workers, tasks whose label is least certain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.crowd.pipeline.summaries import LabelSummary
from pmflib.store.artefacts import Reference, Store
from pmflib.store.file_digests import check_file

WORKERS = "workers.parquet"
"""Table of the workers, in the folder of an artefact of labels."""
WORKERS_LISTED = 1000
"""Workers that are listed, at most: those with the most labels."""


@dataclass(frozen=True, eq=False)
class LabelReport:
    """What was found in a label log.

    Parameters
    ----------
    summary
        What was found, as the run has recorded it.
    workers
        Names of the workers.
    n_labels
        int64 of shape (n_workers,): labels that each gave.
    accuracy
        float64 of shape (n_workers,): probability that a worker labels a task chosen at random right.
    confusion
        float64 of shape (n_classes, n_classes): PMF of a label (second axis) by true class (first), mean over all
        workers, each as often as it gave labels.
    """

    summary: LabelSummary
    workers: list[str]
    n_labels: IntArray
    accuracy: FloatArray
    confusion: FloatArray

    @property
    def classes(self) -> list[tuple[str, float]]:
        """Classes and their shares of the tasks."""
        return list(zip(self.summary.classes, self.summary.prior, strict=True))

    @property
    def chance(self) -> float:
        """Accuracy of always giving the most frequent class."""
        return float(max(self.summary.prior, default=0.0))

    def list_workers(self) -> list[tuple[str, int, float]]:
        """Workers with the most labels: name, labels given, accuracy."""
        order = np.argsort(-self.n_labels, kind="stable")[:WORKERS_LISTED].tolist()
        return [
            (self.workers[each], int(self.n_labels[each]), float(self.accuracy[each]))
            for each in order
        ]


def gather_labels(store: Store, labels: Reference, summary: LabelSummary) -> LabelReport:
    """Gather what was found in a label log.

    Parameters
    ----------
    store
        The store.
    labels
        Artefact of the labels.
    summary
        What was found, by the facts of the run.

    Raises
    ------
    StoreError
        If the artefact is not in the store, or damaged.
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
