"""Votes as levels of their own: how many annotators answered each class, beside who answered what."""

from __future__ import annotations

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.blocks import SparseBlock

MOST_VOTES = 127
"""Votes of one item for one class are told apart up to this number."""
HALF = 0.5
"""Votes that every class is given beforehand."""
PROMPT = 40.0
"""Nats by which a class without a vote is ruled out of the shares of votes."""


def count_vote_levels(n_annotators: int) -> int:
    """Levels for the votes of one class."""
    return min(n_annotators, MOST_VOTES)


def extend_offsets(n_annotators: int, n_classes: int) -> IntArray:
    """Offsets of the annotators' answers, and behind them of the votes for each class.

    Returns
    -------
    int64 of shape (n_annotators + n_classes + 1,).
    """
    answers = np.arange(n_annotators + 1, dtype=np.int64) * n_classes
    votes = np.arange(1, n_classes + 1, dtype=np.int64) * count_vote_levels(n_annotators)
    return np.concatenate([answers, answers[-1] + votes])


def tally_votes(block: SparseBlock, n_classes: int) -> IntArray:
    """Votes for each class, int64 of shape (n_rows, n_classes)."""
    rows = np.repeat(np.arange(block.n_rows), np.diff(block.indptr))
    places = rows * n_classes + block.indices % n_classes
    votes: IntArray = np.bincount(places, minlength=block.n_rows * n_classes)
    return votes.reshape(block.n_rows, n_classes)


def add_votes(block: SparseBlock, n_annotators: int, n_classes: int) -> SparseBlock:
    """Return the same items with their votes as levels behind the answers, as `extend_offsets` numbers them.

    Parameters
    ----------
    block
        Items as rows, answers as levels ``annotator * n_classes + class``.
    n_annotators, n_classes
        Sizes.
    """
    most = count_vote_levels(n_annotators)
    votes = tally_votes(block, n_classes)
    rows, classes = np.nonzero(votes)
    levels = n_annotators * n_classes + classes * most + np.minimum(votes[rows, classes], most) - 1
    added = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=block.n_rows))])
    indptr = block.indptr + added
    indices = np.empty(int(indptr[-1]), np.int32)
    lengths = np.diff(block.indptr)
    indices[np.arange(block.n_observed) + np.repeat(added[:-1], lengths)] = block.indices
    indices[np.arange(rows.size) + np.repeat(block.indptr[1:], np.diff(added))] = levels
    return SparseBlock(indptr, indices, block.weights)


def weigh_votes(n_annotators: int, n_classes: int, weight: float) -> FloatArray:
    """Weights of the vote levels, nats: a class is as probable as its share of the votes, to a power.

    Returns
    -------
    float64 of shape (n_vote_levels, n_classes).
    """
    votes = np.arange(1, count_vote_levels(n_annotators) + 1)
    return _place(weight * np.log((votes + HALF) / HALF), n_classes)


def share_votes(n_annotators: int, n_classes: int) -> FloatArray:
    """Weights of the vote levels under which an item's posterior is its shares of the votes, nats.

    Returns
    -------
    float64 of shape (n_vote_levels, n_classes).
    """
    votes = np.arange(1, count_vote_levels(n_annotators) + 1)
    return _place(PROMPT + np.log(votes), n_classes)


def _place(gains: FloatArray, n_classes: int) -> FloatArray:
    """Votes for a class speak for it, and say nothing about the others."""
    weights = np.zeros((n_classes, gains.size, n_classes))
    for one in range(n_classes):
        weights[one, :, one] = gains
    return weights.reshape(-1, n_classes)
