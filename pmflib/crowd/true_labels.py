"""True labels, with what is known of each, and of each worker."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.blocks import SparseBlock
from pmflib.core.errors import PmfError
from pmflib.core.texts import list_near
from pmflib.crowd.classifiers import ClassifierWorth
from pmflib.crowd.confidence import Calibration, calibrate, calibrate_votes
from pmflib.crowd.copied_labels import Copies, drop_repeated, find_copies
from pmflib.crowd.known_labels import REJECTED, find_known
from pmflib.crowd.label_counts import LabelCounts
from pmflib.crowd.label_log import LabelLog
from pmflib.crowd.questions import LEAST_TASKS, choose_questions, measure_uncertainty
from pmflib.crowd.workers import (
    SuspiciousWorker,
    find_suspicious,
    make_worker_table,
    measure_accuracy,
)
from pmflib.display.summary import Summarised, Summary

if TYPE_CHECKING:
    from pmflib.display.drawing import Axes


@dataclass(frozen=True, eq=False)
class Aggregation(Summarised):
    """A label log, aggregated.

    Parameters
    ----------
    log
        The labels that workers gave.
    posterior
        float64 of shape (n_tasks, n_classes): probability of each class under the method's own model. It is too sure:
        labels and confidence are those of `probabilities`.
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
    reason
        What was chosen by the log, and why; empty where the method has nothing to choose.
    copied_groups
        Indices of workers who repeat each other's labels, of each group: see `pmflib.crowd.copied_labels`. Their labels
        count once in the probabilities as in the posterior. Methods that do not look for them have none.
    predictions
        float64 of shape (n_tasks, n_classes): class probabilities of a classifier, NaN where it has none; None without
        a classifier. They are no part of the posterior, but of `probabilities`.
    """

    log: LabelLog
    posterior: FloatArray
    prior: FloatArray
    confusion: FloatArray
    method: str
    n_passes: int = 0
    converged: bool = True
    reason: str = ""
    copied_groups: tuple[tuple[int, ...], ...] = ()
    predictions: FloatArray | None = None

    def __repr__(self) -> str:
        """The log, and how its labels were found."""
        settled = "converged" if self.converged else "not converged"
        return (
            f"Aggregation({self.log!r}, method {self.method!r}, {self.n_passes} passes, {settled})"
        )

    def summary(self) -> Summary:
        """Classes, workers by skill, uncertain tasks: text in a terminal, HTML in a notebook."""
        from pmflib.crowd.summaries import LISTED, summarise_labels

        passes = self.method, self.n_passes, self.converged
        asked, n_rejected = self.ask_again(LISTED), self.known_quarantine.num_rows
        found = summarise_labels(self.log, self.labels, self.workers, asked, passes, n_rejected)
        return (
            replace(found, facts=(*found.facts, ("chosen", self.reason))) if self.reason else found
        )

    @cached_property
    def codes(self) -> IntArray:
        """Most probable class of each task, int64 of shape (n_tasks,); the first of equals."""
        codes: IntArray = self.probabilities.argmax(axis=1)
        return codes

    @cached_property
    def calibration(self) -> Calibration:
        """Power of the labels, and share of shared errors, that make probabilities as often right as they say."""
        return calibrate(self._counted, self.posterior, self.log.n_workers, self._known)

    @cached_property
    def probabilities(self) -> FloatArray:
        """Calibrated probability of each class, (n_tasks, n_classes); see `pmflib.crowd.confidence`.

        The label of a task is the most probable class. Under majority vote it is the class with most votes, and so the
        probabilities are those of numbers of votes: see `pmflib.crowd.confidence.calibrate_votes`.
        """
        if self.classifier is None or self.predictions is None:
            return self._by_labels
        return self.classifier.add(self.predictions, self._by_labels)

    @cached_property
    def classifier(self) -> ClassifierWorth | None:
        """What a classifier is worth beside the labels; None without one."""
        if self.predictions is None:
            return None
        return ClassifierWorth.learn(self.predictions, self._by_labels)

    @cached_property
    def _by_labels(self) -> FloatArray:
        """Probabilities by the labels alone, calibrated."""
        if self.method == "majority":
            return calibrate_votes(self.log.block, self.posterior, self._known)
        return self.calibration.apply(self._counted, self.posterior, self._known)

    @cached_property
    def _counted(self) -> SparseBlock:
        """The labels, those that repeat others left out."""
        return drop_repeated(self.log.block, self.copied_groups, self.log.n_classes)

    @property
    def _known(self) -> IntArray | None:
        """Class of each task, -1 where it is not known; None where none is."""
        return None if self.log.known is None else self.log.known.codes

    @property
    def confidence(self) -> FloatArray:
        """Calibrated probability of the class that was chosen, (n_tasks,)."""
        return np.asarray(self.probabilities.max(axis=1, initial=0.0))

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
        return measure_accuracy(self.prior, self.confusion)

    @property
    def workers(self) -> pa.Table:
        """A row per worker: worker, accuracy, n_labels, skill, standard_error.

        The accuracy is that of the method's confusion matrix. The skill is what it is under the calibrated posterior,
        shrunk toward all workers where labels are few, with its standard error: see
        `pmflib.crowd.workers.measure_skills`.
        """
        owners = self.log.block.indices // self.log.n_classes
        n_labels = np.bincount(owners, minlength=self.log.n_workers)
        return make_worker_table(
            self.log.workers, self.prior, self.confusion, n_labels, self.calibration
        )

    @cached_property
    def tally(self) -> LabelCounts:
        """How far workers agree: Krippendorff's alpha, agreement with the majority, what each worker gave."""
        return LabelCounts.from_labels(
            self.log.block, self.posterior, self.codes, self.log.n_workers, self.log.is_known
        )

    @cached_property
    def copies(self) -> list[Copies]:
        """Pairs of workers with the same mistakes: see `pmflib.crowd.copied_labels.find_copies`."""
        confusion = self.calibration.rounds[-1].model.confusion
        return find_copies(self.log.block, self.posterior, confusion)

    @property
    def suspicious_workers(self) -> list[SuspiciousWorker]:
        """Workers whose labels are worse than chance, always the same, or another's.

        See `pmflib.crowd.workers.find_suspicious`.
        """
        names = self.log.workers.to_pylist(), self.log.classes.to_pylist()
        return find_suspicious(self.tally, *names, self.prior, self.copies)

    def plot_confusion(self, worker: object, **options: Any) -> Axes:
        """Draw the confusion matrix of a worker: see `pmflib.crowd.summaries.plot_confusion`.

        Raises
        ------
        PmfError
            If matplotlib is not installed, or there is no worker of this name in the log.
        """
        from pmflib.crowd.summaries import plot_confusion

        names: list[object] = self.log.workers.to_pylist()
        if worker not in names:
            close = list_near(str(worker), list(map(str, names)))
            hint = f"did you mean {close}?" if close else f"there are {names[:5]} and more"
            raise PmfError(f"worker {worker!r} gave no label; {hint}")
        index, classes = names.index(worker), self.log.classes.to_pylist()
        return plot_confusion(
            worker, self.confusion[index], classes, self.accuracy[index], **options
        )

    def plot_skills(self, **options: Any) -> Axes:
        """Draw how good the workers are against how much they labelled.

        See `pmflib.crowd.summaries.plot_accuracies`; chance is to always give the most frequent class.
        """
        from pmflib.crowd.summaries import plot_accuracies

        n_labels = self.workers["n_labels"].to_numpy()
        return plot_accuracies(n_labels, self.accuracy, float(self.prior.max()), **options)

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
        from pmflib.crowd.confidence import assess_confidence
        from pmflib.display.drawing import plot_reliability

        codes = find_known(known, self.log.tasks, self.log.classes).codes
        unseen = np.where(self.log.is_known, -1, codes)
        bins = assess_confidence(self.posterior, self.probabilities, unseen)
        return plot_reliability(bins, "confidence in the label, %", ax=ax)

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
        `pmflib.crowd.questions.choose_questions`. Of a task that all workers have labelled, the worker is null.

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
        indices, workers, gains = choose_questions(
            self.probabilities[rows], self.calibration, asked[: rows.size], n_tasks
        )
        chosen = self.labels.take(pa.array(rows[indices]))
        named = self.log.workers.take(pa.array(workers, mask=workers < 0))
        return chosen.append_column("worker", named).append_column("gain", pa.array(gains))
