"""Workers who share mistakes: the same wrong labels more often than their confusion matrices let expect."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc

from pmflib.arrays import FloatArray, IntArray
from pmflib.blocks import SparseBlock

MOST_LABEL_PAIRS = 1 << 20
"""Pairs of labels of the same task that are looked at, about: of more, tasks are taken evenly from all."""
BYTES_OF_PAIR = 96
"""Bytes of a pair of labels of the same task, with what is made of it."""
LEAST_COMMON = 8
"""Tasks in common below which two workers are not compared."""
PIECE_PAIRS = 1 << 17
"""Pairs of labels that are worked on at a time."""
OTHERS_WORTH = 1.0
"""Wrong labels that are expected of a task's other workers before they are looked at: one label says little of a
task."""
LEAST_SHARED = 4.0
"""Wrong labels in common below which nothing is said of two workers."""
BY_CHANCE = 0.01
"""Probability that any two workers of a log are taken for copies by chance."""


@dataclass(frozen=True)
class Copies:
    """Two workers with the same mistakes.

    Parameters
    ----------
    first, second
        The workers, by place.
    shared, expected
        Wrong labels that both gave alike, as far as is known, and how many these would be by chance.
    """

    first: int
    second: int
    shared: float
    expected: float


def find_copies(labels: SparseBlock, posterior: FloatArray, confusion: FloatArray) -> list[Copies]:
    """Find pairs of workers who give the same wrong labels beyond chance, the most striking first.

    By chance, two workers who label a task of a class are wrong in the same way as their confusion matrices say,
    independently of each other, but for how hard the task is, which the other workers' wrong labels say. Their
    wrong labels in common then have a Poisson distribution, with a mean that is raised by as much as all pairs together
    exceed it.

    Parameters
    ----------
    labels
        Tasks as rows, labels as levels ``worker * n_classes + class``.
    posterior
        float64 of shape (n_tasks, n_classes).
    confusion
        float64 of shape (n_workers, n_classes, n_classes): PMF of a worker's labels (second axis) by true class.

    Returns
    -------
    Pairs that are as rare by chance as ``BY_CHANCE`` divided by the number of pairs that are compared, those with
    ``LEAST_COMMON`` tasks in common; each with at least ``LEAST_SHARED`` wrong labels in common. About
    ``MOST_LABEL_PAIRS`` pairs of labels are looked at.

    Notes
    -----
    Time and memory are those of the pairs of labels that are looked at.
    """
    several = np.flatnonzero(np.diff(labels.indptr) > 1)
    lengths = np.diff(labels.indptr)[several]
    n_pairs = int((lengths * (lengths - 1) // 2).sum())
    rows = several[:: max(1, -(-n_pairs // MOST_LABEL_PAIRS))]
    if not rows.size:
        return []
    n_workers = len(confusion)
    keys, shared, expected = _add_pairs(labels.take(rows), posterior[rows], confusion)
    expected *= max(1.0, shared.sum() / max(expected.sum(), np.finfo(np.float64).tiny))
    # wrong as far as is known: whole labels, rounded down
    counts = np.floor(shared + 1e-9)
    rarity = gammainc(np.maximum(counts, 1.0), np.maximum(expected, np.finfo(np.float64).tiny))
    found = np.flatnonzero((counts >= LEAST_SHARED) & (rarity * keys.size < BY_CHANCE))
    order = found[np.argsort(rarity[found], kind="stable")]
    return [
        Copies(
            int(keys[place] // n_workers),
            int(keys[place] % n_workers),
            float(shared[place]),
            float(expected[place]),
        )
        for place in order
    ]


def _add_pairs(
    block: SparseBlock, posterior: FloatArray, confusion: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Keys of the pairs of workers with enough tasks in common, their wrong labels in common, and those expected."""
    n_workers, n_classes, _ = confusion.shape
    # labels that are wrong, by worker and class
    mistakes = confusion * (1 - np.eye(n_classes))
    error = mistakes.sum(axis=1)
    lengths = np.diff(block.indptr)
    task = np.repeat(np.arange(block.n_rows), lengths)
    worker, label = np.divmod(block.indices.astype(np.int64), n_classes)
    wrong = 1.0 - posterior[task, label]
    usual = (posterior[task] * error[worker]).sum(axis=1)
    wrong_all = np.bincount(task, wrong, minlength=block.n_rows)
    usual_all = np.bincount(task, usual, minlength=block.n_rows)
    first, second, at = _list_pairs(block)
    # workers increase within a task
    keys, places, n_common = np.unique(
        worker[first] * n_workers + worker[second], return_inverse=True, return_counts=True
    )
    kept = n_common >= LEAST_COMMON
    numbers = np.cumsum(kept) - 1
    compared = np.flatnonzero(kept[places])
    sums = np.zeros((2, int(kept.sum())))
    for start in range(0, compared.size, PIECE_PAIRS):
        some = compared[start : start + PIECE_PAIRS]
        one, other, row = first[some], second[some], at[some]
        ours = np.where(label[one] == label[other], wrong[one], 0.0)
        others_wrong = wrong_all[row] - wrong[one] - wrong[other]
        others_usual = usual_all[row] - usual[one] - usual[other]
        hardness = (others_wrong + OTHERS_WORTH) / (others_usual + OTHERS_WORTH)
        chance = np.zeros(some.size)
        for given in range(n_classes):
            both = mistakes[worker[one], given] * mistakes[worker[other], given]
            chance += (both * posterior[row]).sum(axis=1)
        pairs = numbers[places[some]]
        for total, added in zip(sums, (ours, chance * hardness), strict=True):
            total += np.bincount(pairs, added, minlength=total.size)
    return keys[kept], sums[0], sums[1]


def _list_pairs(block: SparseBlock) -> tuple[IntArray, IntArray, IntArray]:
    """Places of each two labels of the same task, and the task."""
    places = np.arange(block.n_observed)
    lengths = np.diff(block.indptr)
    tasks = np.repeat(np.arange(block.n_rows), lengths)
    after = np.repeat(block.indptr[1:], lengths) - 1 - places
    first = np.repeat(places, after)
    starts = np.repeat(np.cumsum(after) - after, after)
    second = first + 1 + np.arange(first.size) - starts
    return first, second, np.repeat(tasks, after)
