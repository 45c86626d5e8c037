"""Agreement of the workers of a label log, with the majority and with each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from pmflib.base.arrays import BoolArray, FloatArray, IntArray
from pmflib.base.blocks import SparseBlock


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """Sums over tasks; those of the parts of a log add up.

    Parameters
    ----------
    coincidences
        float64 of shape (n_classes, n_classes): pairs of labels of the same task, divided by the task's number of
        labels minus one, so that every label counts once.
    n_labelled, n_agreeing
        Tasks with labels whose class is estimated, not known; of these, tasks whose estimated label has no fewer votes
        than any other.
    given
        int64 of shape (n_workers, n_classes): labels that each worker gave.
    right
        float64 of shape (n_workers,): expected number of correct labels, by posterior.
    confidence
        Sum of the calibrated probabilities of the estimated and known labels of all tasks.
    """

    coincidences: FloatArray
    n_labelled: int
    n_agreeing: int
    given: IntArray
    right: FloatArray
    confidence: float

    @classmethod
    def zero(cls, n_workers: int, n_classes: int) -> LabelCounts:
        """Zero sums."""
        given = np.zeros((n_workers, n_classes), np.int64)
        return cls(np.zeros((n_classes, n_classes)), 0, 0, given, np.zeros(n_workers), 0.0)

    @classmethod
    def from_labels(
        cls,
        labels: SparseBlock,
        posterior: FloatArray,
        probabilities: FloatArray,
        n_workers: int,
        is_known: BoolArray | None = None,
    ) -> LabelCounts:
        """Compute the sums of some tasks.

        Parameters
        ----------
        labels
            Tasks as rows, labels as levels ``worker * n_classes + class``.
        posterior
            float64 of shape (n_tasks, n_classes).
        probabilities
            Calibrated, float64 of shape (n_tasks, n_classes); the label of a task is its most probable class.
        n_workers
            Number of workers.
        is_known
            Whether the true label of each task was known, (n_tasks,); None if none was.
        """
        n_tasks, n_classes = posterior.shape
        workers, classes = np.divmod(labels.indices.astype(np.int64), n_classes)
        tasks = np.repeat(np.arange(n_tasks), np.diff(labels.indptr))
        votes = np.bincount(tasks * n_classes + classes, minlength=posterior.size)
        votes = votes.reshape(posterior.shape).astype(float)
        n_votes = votes.sum(axis=1)
        several = n_votes > 1
        pairable, weights = votes[several], 1 / (n_votes[several] - 1)
        pairs = (pairable * weights[:, None]).T @ pairable
        pairs[np.diag_indices(n_classes)] -= weights @ pairable
        for_label = votes[np.arange(n_tasks), probabilities.argmax(axis=1)]
        is_found = n_votes > 0
        if is_known is not None:
            is_found &= ~is_known
        given = np.bincount(labels.indices, minlength=n_workers * n_classes)
        right = np.bincount(workers, posterior[tasks, classes], minlength=n_workers).astype(float)
        agrees = is_found & (for_label == votes.max(axis=1, initial=0))
        given, sure = (
            given.reshape(n_workers, n_classes),
            probabilities.max(axis=1, initial=0.0).sum(),
        )
        return cls(pairs, int(is_found.sum()), int(agrees.sum()), given, right, float(sure))

    @staticmethod
    def merge(parts: Sequence[LabelCounts]) -> LabelCounts:
        """Add up sums, at least one, in the order given."""

        def add(one: LabelCounts, other: LabelCounts) -> LabelCounts:
            return LabelCounts(
                one.coincidences + other.coincidences,
                one.n_labelled + other.n_labelled,
                one.n_agreeing + other.n_agreeing,
                one.given + other.given,
                one.right + other.right,
                one.confidence + other.confidence,
            )

        return reduce(add, parts)

    @property
    def alpha(self) -> float | None:
        """Krippendorff's alpha of nominal labels: 1 is full agreement, 0 that of chance; None where it is undefined.

        Tasks with fewer than two labels are ignored. It is undefined if no task is left, or all labels are equal.

        References
        ----------
        Krippendorff (2019), Content Analysis, section 12.3: canonical form, any number of observers, missing data.
        """
        margins = self.coincidences.sum(axis=1)
        total = margins.sum()
        expected = total**2 - (margins**2).sum()
        if total <= 1 or expected <= 0:
            return None
        observed = total - np.trace(self.coincidences)
        return float(1 - (total - 1) * observed / expected)

    @property
    def majority_agreement(self) -> float | None:
        """Share of the estimated labels that have no fewer votes than any other; None without labels."""
        return self.n_agreeing / self.n_labelled if self.n_labelled else None


UNUSED_SHARE = 0.25
"""Fitted share of a class, relative to its share of the labels, below which the class is hardly used."""
LEAST_LABELS = 20
"""Classes with fewer labels are rare, and never reported as unused."""


def list_unused(n_labels: IntArray, prior: FloatArray) -> list[int]:
    """List the classes whose fitted share is far below their share of the labels: the fit hardly uses them.

    Parameters
    ----------
    n_labels
        int64 of shape (n_classes,): number of labels of each class.
    prior
        float64 of shape (n_classes,): fitted share of each class.
    """
    least = UNUSED_SHARE * n_labels / max(int(n_labels.sum()), 1)
    return np.flatnonzero((n_labels >= LEAST_LABELS) & (prior < least)).tolist()
