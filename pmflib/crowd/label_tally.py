"""What a label log says of itself: how far workers agree, with the votes and with each other, and who does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from pmflib.arrays import BoolArray, FloatArray, IntArray
from pmflib.blocks import SparseBlock
from pmflib.crowd.copied_labels import Copies

LEAST_LABELS = 10
"""Labels below which nothing is said of a worker."""
STANDARD_ERRORS = 2.0
"""Standard errors by which a share of right labels must be below chance to be called so."""
RARE_BY_CHANCE = 1e-3
"""Probability that tasks drawn at random all have one class, below which it is odd that a worker always names it."""


@dataclass(frozen=True, eq=False)
class LabelTally:
    """Sums over tasks, of which those of any parts of a log add up.

    Parameters
    ----------
    coincidences
        float64 of shape (n_classes, n_classes): pairs of labels of the same task, each task's divided by its number of
        labels less one, so that every label counts once.
    n_labelled, n_agreeing
        Tasks with a label whose true one was found, and not known; of these, tasks whose true label has as many votes
        as any other.
    given
        int64 of shape (n_workers, n_classes): labels that each worker gave.
    right
        float64 of shape (n_workers,): labels that were right, as far as is known: posteriors of the classes given.
    """

    coincidences: FloatArray
    n_labelled: int
    n_agreeing: int
    given: IntArray
    right: FloatArray

    @classmethod
    def zero(cls, n_workers: int, n_classes: int) -> LabelTally:
        """Sums over no tasks."""
        given = np.zeros((n_workers, n_classes), np.int64)
        return cls(np.zeros((n_classes, n_classes)), 0, 0, given, np.zeros(n_workers))

    @classmethod
    def from_labels(
        cls,
        labels: SparseBlock,
        posterior: FloatArray,
        n_workers: int,
        is_known: BoolArray | None = None,
    ) -> LabelTally:
        """Sum up tasks.

        Parameters
        ----------
        labels
            Tasks as rows, labels as levels ``worker * n_classes + class``.
        posterior
            float64 of shape (n_tasks, n_classes).
        n_workers
            Number of workers.
        is_known
            Which tasks' true label was known, (n_tasks,); None is of no task.
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
        chosen = votes[np.arange(n_tasks), posterior.argmax(axis=1)]
        is_found = n_votes > 0
        if is_known is not None:
            is_found &= ~is_known
        given = np.bincount(labels.indices, minlength=n_workers * n_classes)
        right = np.bincount(workers, posterior[tasks, classes], minlength=n_workers).astype(float)
        agrees = is_found & (chosen == votes.max(axis=1, initial=0))
        return cls(
            pairs, int(is_found.sum()), int(agrees.sum()), given.reshape(n_workers, -1), right
        )

    @staticmethod
    def merge(parts: Sequence[LabelTally]) -> LabelTally:
        """Add up sums, at least one, in the order given: equal order, equal bits."""

        def add(one: LabelTally, other: LabelTally) -> LabelTally:
            return LabelTally(
                one.coincidences + other.coincidences,
                one.n_labelled + other.n_labelled,
                one.n_agreeing + other.n_agreeing,
                one.given + other.given,
                one.right + other.right,
            )

        return reduce(add, parts)

    @property
    def alpha(self) -> float | None:
        """Krippendorff's alpha of nominal labels: 1 is agreement, 0 what chance gives; None where it is not defined.

        Only labels of tasks with at least two count. Not defined where there are none, or all are the same.

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
        """Share of labelled tasks whose true label, where it was not known, has as many votes as any other; or None."""
        return self.n_agreeing / self.n_labelled if self.n_labelled else None

    def find_suspicious(
        self,
        workers: Sequence[str],
        classes: Sequence[str],
        prior: FloatArray,
        copies: Sequence[Copies] = (),
    ) -> list[dict[str, Any]]:
        """List workers whose labels are worse than chance, always the same, or another's, the worst first.

        Parameters
        ----------
        workers, classes
            Names.
        prior
            float64 of shape (n_classes,), probabilities.
        copies
            As from `pmflib.crowd.copied_labels.find_copies`; both workers are listed, for who copied is not known.

        Returns
        -------
        Worker, reason in words, number of labels, share of them that are right, and what that would be by chance: of
        labels that are given as often, but without a look at the task. It is worse than chance if it is
        ``STANDARD_ERRORS`` of a share below. Only workers with at least ``LEAST_LABELS`` labels.
        """
        n_labels = self.given.sum(axis=1)
        partners: dict[int, list[tuple[int, Copies]]] = {}
        for pair in copies:
            partners.setdefault(pair.first, []).append((pair.second, pair))
            partners.setdefault(pair.second, []).append((pair.first, pair))
        several = np.maximum(n_labels, 1)
        right, chance = self.right / several, (self.given / several[:, None]) @ prior
        found = []
        for worker in map(int, np.flatnonzero(n_labels >= LEAST_LABELS)):
            usual, n = int(self.given[worker].argmax()), int(n_labels[worker])
            reasons = []
            error = np.sqrt(chance[worker] * (1 - chance[worker]) / n)
            if right[worker] < chance[worker] - STANDARD_ERRORS * error:
                reasons.append("worse than chance")
            if self.given[worker, usual] == n and prior[usual] ** n < RARE_BY_CHANCE:
                reasons.append(f"always {classes[usual]!r}")
            if worker in partners:
                other, pair = partners[worker][0]
                more = f" and of {len(partners[worker]) - 1} more" if partners[worker][1:] else ""
                reasons.append(
                    f"has the mistakes of {workers[other]!r}{more}: {pair.shared:.0f} alike, {pair.expected:.1f} by "
                    "chance"
                )
            if reasons:
                found.append(
                    {
                        "worker": workers[worker],
                        "reason": ", ".join(reasons),
                        "n_labels": n,
                        "right": float(right[worker]),
                        "by_chance": float(chance[worker]),
                    }
                )
        return sorted(found, key=lambda each: each["right"] - each["by_chance"])
