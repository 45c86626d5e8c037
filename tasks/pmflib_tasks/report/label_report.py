"""Report of a label log: classes, workers and their confusion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq

from pmflib.apps.crowd.stored.summaries import LabelSummary
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.store.artefacts import Reference, Store
from pmflib.store.file_digests import check_file

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
