"""True labels, with what is known of each, and of each worker."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pmflib.arrays import FloatArray, IntArray
from pmflib.crowd.confidence import Calibration, calibrate
from pmflib.crowd.copied_labels import Copies, find_copies
from pmflib.crowd.known_labels import REJECTED
from pmflib.crowd.label_log import LabelLog
from pmflib.crowd.label_questions import LEAST_TASKS, choose_questions, measure_uncertainty
from pmflib.crowd.label_tally import LabelTally
from pmflib.crowd.worker_skills import measure_skills
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
        float64 of shape (n_tasks, n_classes): probability of each class under the method's own model, by which labels
        are chosen. It is too sure: see `probabilities`.
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

    @cached_property
    def calibration(self) -> Calibration:
        """Power of the labels, and share of shared errors, that make probabilities as often right as they say."""
        known = None if self.log.known is None else self.log.known.codes
        return calibrate(self.log.block, self.posterior, self.log.n_workers, known)

    @cached_property
    def probabilities(self) -> FloatArray:
        """Calibrated probability of each class, (n_tasks, n_classes): see `pmflib.crowd.confidence`.

        The most probable class is nearly always the label, but labels are those of the posterior.
        """
        known = None if self.log.known is None else self.log.known.codes
        return self.calibration.apply(self.log.block, self.posterior, known)

    @property
    def confidence(self) -> FloatArray:
        """Calibrated probability of the class that was chosen, (n_tasks,)."""
        return np.asarray(self.probabilities[np.arange(self.codes.size), self.codes])

    @property
    def labels(self) -> pa.Table:
        """A row per task: task, label, confidence, n_labels, and whether the label was known."""
        return pa.table(
            {
                "task": self.log.tasks,
                "label": self.log.classes.take(pa.array(self.codes)),
                "confidence": self.confidence,
                "n_labels": np.diff(self.log.block.indptr),
                "known": self.log.is_known,
            }
        )

    @property
    def known_quarantine(self) -> pa.Table:
        """Rows of known labels that were set aside: row (from 0), task, label, reason."""
        return REJECTED.empty_table() if self.log.known is None else self.log.known.quarantine

    @property
    def accuracy(self) -> FloatArray:
        """Probability that a worker labels a task drawn at random right, (n_workers,)."""
        right = np.diagonal(self.confusion, axis1=1, axis2=2)
        return np.asarray(right @ self.prior)

    @property
    def workers(self) -> pa.Table:
        """A row per worker: worker, accuracy, n_labels, skill, standard_error.

        The accuracy is that of the method's confusion matrix. The skill is what it is under the calibrated posterior,
        shrunk toward all workers where labels are few, with its standard error: see
        `pmflib.crowd.worker_skills.measure_skills`.
        """
        owners = self.log.block.indices // self.log.n_classes
        n_labels = np.bincount(owners, minlength=self.log.n_workers)
        skill, error = measure_skills(self.calibration.rounds[-1].model)
        return pa.table(
            {
                "worker": self.log.workers,
                "accuracy": self.accuracy,
                "n_labels": n_labels,
                "skill": skill,
                "standard_error": error,
            }
        )

    @cached_property
    def tally(self) -> LabelTally:
        """How far workers agree: Krippendorff's alpha, agreement with the majority, suspicious workers."""
        return LabelTally.from_labels(
            self.log.block, self.posterior, self.log.n_workers, self.log.is_known
        )

    @cached_property
    def copies(self) -> list[Copies]:
        """Pairs of workers with the same mistakes: see `pmflib.crowd.copied_labels.find_copies`."""
        confusion = self.calibration.rounds[-1].model.confusion
        return find_copies(self.log.block, self.posterior, confusion)

    @property
    def suspicious_workers(self) -> list[dict[str, Any]]:
        """Workers whose labels are worse than chance, always the same, or another's: `LabelTally.find_suspicious`."""
        names = self.log.workers.to_pylist(), self.log.classes.to_pylist()
        return self.tally.find_suspicious(*names, self.prior, self.copies)

    def plot_confusion(self, worker: object, **options: Any) -> Axes:
        """Draw the confusion matrix of a worker: see `pmflib.plots.worker_plots.plot_confusion`."""
        from pmflib.plots.worker_plots import plot_confusion

        return plot_confusion(self, worker, **options)

    def plot_skills(self, **options: Any) -> Axes:
        """Draw how good the workers are: see `pmflib.plots.worker_plots.plot_skills`."""
        from pmflib.plots.worker_plots import plot_skills

        return plot_skills(self, **options)

    def plot_reliability(self, known: object, *, ax: Axes | None = None) -> Axes:
        """Draw how often labels are right by how sure they are, before and after calibration.

        Parameters
        ----------
        known
            True labels of some tasks, as for `aggregate`; those that it was given are left out.
        ax
            Axes to draw on; None makes some.

        Returns
        -------
        The Axes: bins of as many tasks, bars are two standard errors; on the diagonal confidence is what it says.

        Raises
        ------
        SchemaError, PmfError
            If none of the known labels can be used, or matplotlib is not installed.
        """
        from pmflib.crowd.reliability import judge_confidence
        from pmflib.plots.score_plots import plot_reliability

        return plot_reliability(judge_confidence(self, known), "confidence in the label, %", ax=ax)

    def ask_again(self, n_tasks: int) -> pa.Table:
        """List the tasks where one more label is worth most, and who should give it; not those that are known.

        Parameters
        ----------
        n_tasks
            How many, at least 0.

        Returns
        -------
        Arrow table with the columns of `labels`, then worker, the one whose label is expected to say most of those who
        have not labelled the task, and gain, by how much it is expected to reduce the entropy of the task's class, in
        nats. The largest gain first, of equals the least certain. Tasks are chosen from the most uncertain: see
        `pmflib.crowd.label_questions.choose_questions`. Of a task that all workers have labelled, the worker is null.

        Raises
        ------
        PmfError
            If n_tasks is negative.

        References
        ----------
        Lindley (1956), Annals of Mathematical Statistics 27.
        """
        if n_tasks < 0:
            raise PmfError(f"n_tasks is {n_tasks}; give at least 0")
        uncertainty = measure_uncertainty(self.probabilities)
        n_compared = max(2 * n_tasks, LEAST_TASKS)
        order = np.argsort(-uncertainty, kind="stable")
        rows = np.sort(order[~self.log.is_known[order]][:n_compared])
        block = self.log.block.take(rows)
        asked = np.split(block.indices // self.log.n_classes, block.indptr[1:-1])
        places, workers, gains = choose_questions(
            self.probabilities[rows], self.calibration, asked[: rows.size], n_tasks
        )
        chosen = self.labels.take(pa.array(rows[places]))
        named = self.log.workers.take(pa.array(workers, mask=workers < 0))
        return chosen.append_column("worker", named).append_column("gain", pa.array(gains))
