"""Result of `pmflib.apps.crowd.aggregate`: true labels with their probabilities, and the workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from pmflib.apps.crowd.confidence import calibrate_votes, describe_confidence
from pmflib.apps.crowd.known_labels import REJECTED, find_known
from pmflib.apps.crowd.label_counts import LabelCounts
from pmflib.apps.crowd.label_log import LabelLog
from pmflib.apps.crowd.labelling import Labelling, LabelRule, ScoredBlock, ScoredTasks
from pmflib.apps.crowd.questions import LEAST_TASKS, choose_questions, measure_uncertainty
from pmflib.apps.crowd.workers import SuspiciousWorker, measure_accuracy
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.constraints import OneOf, at_least, check
from pmflib.base.display.summary import Summarised, Summary, format_count

if TYPE_CHECKING:
    from pmflib.apps.crowd.label_plans import LabelPlan
    from pmflib.base.display.drawing import Axes

R = TypeVar("R")


class TasksInMemory(ScoredTasks):
    """Tasks of a log in memory with their posterior: one block, and one fold.

    Parameters
    ----------
    log
        The labels that workers gave.
    posterior
        float64 of shape (n_tasks, n_classes).
    predictions
        float64 of shape (n_tasks, n_classes): class probabilities of a classifier, NaN for tasks without any; None
        without a classifier.
    """

    def __init__(
        self, log: LabelLog, posterior: FloatArray, predictions: FloatArray | None = None
    ) -> None:
        self.log = log
        self.workers, self.classes, self.n_tasks = log.workers, log.classes, log.n_tasks
        lengths = np.diff(log.block.indptr)
        self.n_label_pairs = float((lengths * (lengths - 1) // 2).sum())
        self.with_predictions = predictions is not None
        codes = None if log.known is None else log.known.codes
        self.block = ScoredBlock(log.block, posterior, codes, predictions)

    def map(self, function: Callable[..., R], merge: Callable[[Sequence[R]], R], *shared: Any) -> R:
        """Call the function with the one block."""
        return function([self.block], *shared)

    def map_folds(self, function: Callable[..., R], *shared: Any) -> list[R]:
        """Call the function with the one block."""
        return [function([self.block], *shared)]

    def call(self, function: Callable[..., R], *shared: Any) -> R:
        """Call the function with the one block."""
        return function([self.block], *shared)


@dataclass(frozen=True, eq=False)
class Aggregation(Labelling, Summarised):
    """A label log in memory, aggregated.

    Parameters
    ----------
    tasks
        The log, with the posterior of its tasks.
    prior, confusion, copied_groups
        As for `pmflib.apps.crowd.labelling.Labelling`.
    method
        Name of the method.
    n_passes
        EM passes made.
    converged
        Whether the last pass moved less than the tolerance.
    reason
        What was chosen by the log, and why; empty where the method has nothing to choose.
    """

    tasks: TasksInMemory
    method: str = ""
    n_passes: int = 0
    converged: bool = True
    reason: str = ""

    def __repr__(self) -> str:
        """Sizes of the log, the method and its passes."""
        settled = "converged" if self.converged else "not converged"
        return (
            f"Aggregation({self.log!r}, method {self.method!r}, {self.n_passes} passes, {settled})"
        )

    def summary(self) -> Summary:
        """Summarise classes, workers and uncertain tasks: text in a terminal, HTML in a notebook."""
        from pmflib.apps.crowd.summaries import LISTED, summarise_labels

        passes = self.method, self.n_passes, self.converged
        asked, n_rejected = self.ask_again(LISTED), self.known_quarantine.num_rows
        found = summarise_labels(self.log, self.labels, self.workers, asked, passes, n_rejected)
        facts = list(found.facts)
        if self.log.n_tasks:
            n_known = int(self.log.is_known.sum())
            facts.append(
                (
                    "confidence",
                    describe_confidence(self.tally.confidence / self.log.n_tasks, n_known),
                )
            )
        if self.reason:
            facts.append(("chosen", self.reason))
        notes = found.notes
        if suspicious := self.suspicious_workers:
            notes += (
                f"Labels of {format_count(len(suspicious))} workers are chance or worse, always the same, or copied: "
                "see suspicious_workers",
            )
        return replace(found, facts=tuple(facts), notes=notes)

    @property
    def log(self) -> LabelLog:
        """The labels that workers gave."""
        return self.tasks.log

    @property
    def posterior(self) -> FloatArray:
        """Probability of each class under the method's own model, float64 of shape (n_tasks, n_classes).

        It is too sure: labels and confidence are those of `probabilities`.
        """
        return self.tasks.block.posterior

    @property
    def predictions(self) -> FloatArray | None:
        """Class probabilities of a classifier, (n_tasks, n_classes), NaN for tasks without any; None without one.

        They are no part of `posterior`, but of `probabilities`.
        """
        return self.tasks.block.predictions

    @cached_property
    def codes(self) -> IntArray:
        """Most probable class of each task, int64 of shape (n_tasks,); the first of equals."""
        codes: IntArray = self.probabilities.argmax(axis=1)
        return codes

    @cached_property
    def by_labels(self) -> LabelRule:
        """How probabilities are computed from the labels alone; under majority vote, from the numbers of votes."""
        if self.method != "majority":
            return super().by_labels
        block = self.tasks.block
        return LabelRule(calibrate_votes(block.labels, block.posterior, block.codes), ())

    @cached_property
    def probabilities(self) -> FloatArray:
        """Calibrated probability of each class, (n_tasks, n_classes); see `pmflib.apps.crowd.confidence`.

        The label of a task is the most probable class. Under majority vote it is the class with most votes, and
        probabilities are computed from numbers of votes: see `pmflib.apps.crowd.confidence.calibrate_votes`.
        """
        return self.rule.apply(self.tasks.block)

    @property
    def confidence(self) -> FloatArray:
        """Calibrated probability of the label of each task, (n_tasks,)."""
        return np.asarray(self.probabilities.max(axis=1, initial=0.0))

    @property
    def labels(self) -> pa.Table:
        """Arrow table with a row per task: task, label, confidence, n_labels, known.

        Label and confidence are null if nothing is known of a task: no worker labelled it, its label is not known, and
        no classifier predicts it.
        """
        n_labels, is_known = np.diff(self.log.block.indptr), self.log.is_known
        is_blank = (n_labels == 0) & ~is_known
        if self.predictions is not None:
            is_blank &= np.isnan(self.predictions).any(axis=1)
        return pa.table(
            {
                "task": self.log.tasks,
                "label": self.log.classes.take(pa.array(self.codes, mask=is_blank)),
                "confidence": pa.array(self.confidence, mask=is_blank),
                "n_labels": n_labels,
                "known": is_known,
            }
        )

    @property
    def known_quarantine(self) -> pa.Table:
        """Rows of known labels that were set aside: row (from 0), task, label, reason."""
        return REJECTED.empty_table() if self.log.known is None else self.log.known.quarantine

    @property
    def accuracy(self) -> FloatArray:
        """Probability that each worker labels a random task correctly, (n_workers,)."""
        return measure_accuracy(self.prior, self.confusion)

    @property
    def workers(self) -> pa.Table:
        """Arrow table with a row per worker: worker, accuracy, n_labels, skill, standard_error.

        The accuracy is that of the method's confusion matrix. The skill is the accuracy under the calibrated posterior,
        shrunk toward that of all workers where labels are few; the standard error is that of the skill. See
        `pmflib.apps.crowd.workers.measure_skills`.
        """
        owners = self.log.block.indices // self.log.n_classes
        n_labels = np.bincount(owners, minlength=self.log.n_workers)
        return self.make_worker_table(n_labels, with_confusion=False)

    @cached_property
    def tally(self) -> LabelCounts:
        """Agreement of the workers: Krippendorff's alpha, agreement with the majority, labels of each worker."""
        return LabelCounts.from_labels(
            self.log.block,
            self.posterior,
            self.probabilities,
            self.log.n_workers,
            self.log.is_known,
        )

    @property
    def suspicious_workers(self) -> list[SuspiciousWorker]:
        """Workers whose labels are chance or worse, always the same, or copied.

        See `pmflib.apps.crowd.workers.find_suspicious`.
        """
        return self.find_suspicious(self.tally)

    def plot_confusion(self, worker: object, **options: Any) -> Axes:
        """Draw the confusion matrix of a worker: see `pmflib.apps.crowd.summaries.plot_confusion`.

        Raises
        ------
        PmfError
            If matplotlib is not installed, or there is no worker of this name in the log.
        """
        from pmflib.apps.crowd.summaries import plot_confusion

        names: list[object] = self.log.workers.to_pylist()
        check(OneOf(names), worker=worker)
        index, classes = names.index(worker), self.log.classes.to_pylist()
        return plot_confusion(
            worker, self.confusion[index], classes, self.accuracy[index], **options
        )

    def plot_skills(self, **options: Any) -> Axes:
        """Draw the accuracy of the workers against their number of labels.

        See `pmflib.apps.crowd.summaries.plot_accuracies`; chance is the accuracy of always giving the most frequent
        class.
        """
        from pmflib.apps.crowd.summaries import plot_accuracies

        n_labels = self.workers["n_labels"].to_numpy()
        return plot_accuracies(n_labels, self.accuracy, float(self.prior.max()), **options)

    def plot_reliability(self, known: object, *, ax: Axes | None = None) -> Axes:
        """Draw the share of correct labels by confidence, before and after calibration.

        Parameters
        ----------
        known
            True labels of some tasks, as for `aggregate`; tasks that `aggregate` knew are left out.
        ax
            Axes to draw on; None makes new ones.

        Returns
        -------
        The Axes: bins of equally many tasks, with bars of two standard errors. On the diagonal, confidence is exact.

        Raises
        ------
        SchemaError, PmfError
            If none of the known labels can be used, or matplotlib is not installed.
        """
        from pmflib.apps.crowd.confidence import assess_confidence
        from pmflib.base.display.drawing import plot_reliability

        codes = find_known(known, self.log.tasks, self.log.classes).codes
        unseen = np.where(self.log.is_known, -1, codes)
        bins = assess_confidence(self.posterior, self.probabilities, unseen)
        return plot_reliability(bins, "confidence in the label, %", ax=ax)

    def plan(self, accuracy: float) -> LabelPlan:
        """Plan tasks and labels per task for an error of the confusion matrices, with this log as the pilot.

        Parameters
        ----------
        accuracy
            Root mean square error of the entries, in (0, 1).

        Returns
        -------
        A table of tasks by labels per task, and the pairs of workers who should share more tasks: see
        `pmflib.apps.crowd.label_plans.plan_labels`. `ask_again` lists the tasks and workers to ask next.

        Raises
        ------
        PmfError
            If the accuracy is out of range, there are fewer than three workers, or nothing determines their matrices.
        """
        from pmflib.apps.crowd.label_plans import plan_labels

        return plan_labels(self.prior, self.confusion, self.log.block, self.log.workers, accuracy)

    def ask_again(self, n_tasks: int) -> pa.Table:
        """List the tasks for which one more label would help most, and the worker to ask; known tasks are left out.

        Parameters
        ----------
        n_tasks
            Number of tasks, at least 0.

        Returns
        -------
        Arrow table with the columns of `labels`, worker and gain. The worker has not labelled the task, and a label of
        this worker is expected to reduce the entropy of the task's class most; the gain is that reduction, in nats. The
        worker is null if all workers have labelled the task. Sorted by gain, largest first. Tasks are chosen from the
        most uncertain ones: see `pmflib.apps.crowd.questions.choose_questions`.

        Raises
        ------
        PmfError
            If n_tasks is negative.

        References
        ----------
        Lindley (1956), Annals of Mathematical Statistics 27.
        """
        check(at_least(0), n_tasks=n_tasks)
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
