"""Votes: how many workers gave each label to a task, beside who gave which."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pmflib.core.arrays import BoolArray, FloatArray, IntArray, StrataArray
from pmflib.core.blocks import SparseBlock
from pmflib.model.row_tables import find_maxima

MOST_VOTES = 127
"""Most votes of one task for one class that are distinguished: more count as so many."""
PSEUDO_VOTES = 0.5
"""Votes that every class is given beforehand: half a vote, as Jeffreys' prior would."""
VOTE_GAIN = 40.0
"""Nats by which a class with a vote is ahead of one without, in the shares of votes: more than rounding keeps."""
RULED_OUT = -5.0
"""Log-weight of a class that a task is known not to have, nats, in the passes. A task that all its workers mistake is
left to them: were it certain, it would be taken for the way in which each of them labels. Chosen on other draws of
known tasks of jn-product, labelme and dog than benchmarks/crowd/known_tasks.py makes."""
PACKED_CLASSES = 4
"""Number of classes whose votes are packed into one integer at a time: each takes 7 bits of 64."""


@dataclass(frozen=True, eq=False)
class VotedBlock:
    """Tasks with their votes: tasks with as many votes for each class are a stratum, and have the same prior.

    Tasks whose class is known are in strata of their own.

    Parameters
    ----------
    labels
        Tasks as rows, labels as levels ``worker * n_classes + class``.
    strata
        int32 of shape (n_rows,): stratum of each task.
    vote_counts
        int64 of shape (n_strata, n_classes): votes of the tasks of each stratum, at most ``MOST_VOTES``.
    known
        int64 of shape (n_strata,): known class of the tasks of each stratum, -1 where it is not known.
    """

    labels: SparseBlock
    strata: StrataArray
    vote_counts: IntArray
    known: IntArray

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.vote_counts.shape[1])

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.labels.nbytes + self.strata.nbytes + self.vote_counts.nbytes + self.known.nbytes

    @property
    def codes(self) -> IntArray:
        """Known class of each task, int64 of shape (n_rows,), -1 where it is not known."""
        return np.asarray(self.known[self.strata])

    @property
    def is_known(self) -> BoolArray:
        """Which tasks' class is known, (n_rows,)."""
        return self.codes >= 0

    def weigh_strata(
        self, gains: FloatArray, *, with_known: bool = True
    ) -> tuple[FloatArray, FloatArray]:
        """Log-weights of the classes in every stratum, the largest 0, (n_strata, n_classes), and the largest before.

        Parameters
        ----------
        gains
            Log-weight of a class by its number of votes, as from `weigh_votes`.
        with_known
            Whether another class of a stratum whose class is known is all but ruled out; else it is weighed as the
            others are.
        """
        weights = gains[self.vote_counts]
        known = np.flatnonzero((self.known >= 0) & with_known)
        if known.size:
            kept = weights[known, self.known[known]]
            weights[known] = RULED_OUT
            weights[known, self.known[known]] = kept
        peaks = find_maxima(weights)
        return weights - peaks[:, None], peaks

    @cached_property
    def sizes(self) -> FloatArray:
        """Number of tasks in every stratum, float64 of shape (n_strata,)."""
        counts = np.bincount(self.strata, self.labels.weights, minlength=len(self.vote_counts))
        return counts.astype(np.float64)


def count_votes(block: SparseBlock, n_classes: int) -> IntArray:
    """Votes of each task for each class, int64 of shape (n_rows, n_classes)."""
    rows = np.repeat(np.arange(block.n_rows), np.diff(block.indptr))
    indices = rows * n_classes + block.indices % n_classes
    votes: IntArray = np.bincount(indices, minlength=block.n_rows * n_classes)
    return votes.reshape(block.n_rows, n_classes)


def add_votes(block: SparseBlock, n_classes: int, known: IntArray | None = None) -> VotedBlock:
    """Put tasks in strata by their votes and their known class; strata are in the order of these.

    Parameters
    ----------
    block
        Tasks as rows, labels as levels ``worker * n_classes + class``.
    n_classes
        Number of classes.
    known
        int64 of shape (n_rows,): class of each task, -1 where it is not known; None where it is of no task.
    """
    votes = np.minimum(count_votes(block, n_classes), MOST_VOTES)
    base = int(votes.max(initial=0)) + 1
    strata, first = np.zeros(block.n_rows, np.int64), np.zeros(0, np.int64)
    for start in range(0, n_classes, PACKED_CLASSES):
        for column in votes[:, start : start + PACKED_CLASSES].T:
            strata = strata * base + column
        # as few bits as they take: short integers are sorted faster
        keys = strata.astype(np.min_scalar_type(int(strata.max(initial=0))))
        _, first, strata = np.unique(keys, return_index=True, return_inverse=True)
    if known is None or not (known >= 0).any():
        return VotedBlock(block, strata.astype(np.int32), votes[first], np.full(first.size, -1))
    keys = strata * (n_classes + 1) + known + 1
    _, first, strata = np.unique(keys, return_index=True, return_inverse=True)
    return VotedBlock(block, strata.astype(np.int32), votes[first], known[first])


def weigh_votes(weight: float) -> FloatArray:
    """Log-weight of a class by its number of votes, nats: it is as probable as its share of the votes, to a power.

    Parameters
    ----------
    weight
        The power, at least 0.

    Returns
    -------
    float64 of shape (MOST_VOTES + 1,), the first 0.
    """
    return np.asarray(weight * np.log((np.arange(MOST_VOTES + 1) + PSEUDO_VOTES) / PSEUDO_VOTES))


def share_votes() -> FloatArray:
    """Log-weight of a class under which a task's posterior is its shares of the votes, as `weigh_votes`."""
    return np.concatenate([[0.0], VOTE_GAIN + np.log(np.arange(1, MOST_VOTES + 1))])
