"""True labels, with what is known of each, and of each worker."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pmflib.arrays import FloatArray, IntArray
from pmflib.crowd.label_log import LabelLog
from pmflib.crowd.label_tally import LabelTally
from pmflib.displays.summary import Summarised, Summary
from pmflib.errors import PmfError

if TYPE_CHECKING:
    from pmflib.plots.drawing import Axes


@dataclass(frozen=True, eq=False)
class Aggregation(Summarised):
    """A label log, aggregated.

    Parameters
    ----------
    log
        The labels that workers gave.
    posterior
        float64 of shape (n_tasks, n_classes): probability of each class.
    prior
        float64 of shape (n_classes,).
    confusion
        float64 of shape (n_workers, n_classes, n_classes): PMF of a worker's labels (second axis) by true class
        (third).
    method
        Name of the method.
    n_passes
        EM passes made.
    converged
        Whether they were enough: they moved less than the tolerance.
    """

    log: LabelLog
    posterior: FloatArray
    prior: FloatArray
    confusion: FloatArray
    method: str
    n_passes: int = 0
    converged: bool = True

    def __repr__(self) -> str:
        """The log, and how its labels were found."""
        settled = "converged" if self.converged else "not converged"
        return (
            f"Aggregation({self.log!r}, method {self.method!r}, {self.n_passes} passes, {settled})"
        )

    def summary(self) -> Summary:
        """Classes, workers by skill, uncertain tasks: text in a terminal, HTML in a notebook."""
        from pmflib.displays.crowd_summary import summarise_aggregation

        return summarise_aggregation(self)

    @cached_property
    def codes(self) -> IntArray:
        """Most probable class of each task, int64 of shape (n_tasks,); the first of equals."""
        codes: IntArray = self.posterior.argmax(axis=1)
        return codes

    @property
    def confidence(self) -> FloatArray:
        """Probability of the class that was chosen, (n_tasks,)."""
        return np.asarray(self.posterior[np.arange(self.codes.size), self.codes])

    @property
    def labels(self) -> pa.Table:
        """A row per task: task, label, confidence, n_labels."""
        return pa.table(
            {
                "task": self.log.tasks,
                "label": self.log.classes.take(pa.array(self.codes)),
                "confidence": self.confidence,
                "n_labels": np.diff(self.log.block.indptr),
            }
        )

    @property
    def accuracy(self) -> FloatArray:
        """Probability that a worker labels a task drawn at random right, (n_workers,)."""
        right = np.diagonal(self.confusion, axis1=1, axis2=2)
        return np.asarray(right @ self.prior)

    @property
    def workers(self) -> pa.Table:
        """A row per worker: worker, accuracy, n_labels."""
        owners = self.log.block.indices // self.log.n_classes
        n_labels = np.bincount(owners, minlength=self.log.n_workers)
        return pa.table(
            {"worker": self.log.workers, "accuracy": self.accuracy, "n_labels": n_labels}
        )

    @cached_property
    def tally(self) -> LabelTally:
        """How far workers agree: Krippendorff's alpha, agreement with the majority, suspicious workers."""
        return LabelTally.from_labels(self.log.block, self.posterior, self.log.n_workers)

    @property
    def suspicious_workers(self) -> list[dict[str, Any]]:
        """Workers whose labels are worse than chance, or always the same: see `LabelTally.find_suspicious`."""
        names = self.log.workers.to_pylist(), self.log.classes.to_pylist()
        return self.tally.find_suspicious(*names, self.prior)

    def plot_confusion(self, worker: object, **options: Any) -> Axes:
        """Draw the confusion matrix of a worker: see `pmflib.plots.worker_plots.plot_confusion`."""
        from pmflib.plots.worker_plots import plot_confusion

        return plot_confusion(self, worker, **options)

    def plot_skills(self, **options: Any) -> Axes:
        """Draw how good the workers are: see `pmflib.plots.worker_plots.plot_skills`."""
        from pmflib.plots.worker_plots import plot_skills

        return plot_skills(self, **options)

    def ask_again(self, n_tasks: int) -> pa.Table:
        """List the tasks whose label is least certain: where one more label is worth most.

        Parameters
        ----------
        n_tasks
            How many, at least 0.

        Returns
        -------
        Arrow table with the columns of `labels`, the least certain first; equals in the order of the tasks.

        Raises
        ------
        PmfError
            If n_tasks is negative.
        """
        if n_tasks < 0:
            raise PmfError(f"n_tasks is {n_tasks}; give at least 0")
        order = np.argsort(self.confidence, kind="stable")[:n_tasks]
        return self.labels.take(pa.array(order))
