"""Workers who copy: groups that repeat each other's labels count once; pairs with the same mistakes are reported.

Workers who copy agree with each other, and good workers do too: all the others distinguish them. If the workers
of a group are independent and good, the truth is what they agree on, and explains how the others agree among each
other. If they copy, the truth is not theirs, and the others agree beyond what the group's labels explain. So two models
of all labels are compared by their likelihood. In one all workers label independently, given the truth. In the other
the first label of a group for a task depends on the truth, and its later labels for that task on the first one alone:
they are the same with a probability that is the group's. A log is found to have the group if its labels are likelier
under the second by several standard errors over the tasks. Where copies are only a few of many labels, or the group has
half of the workers, that cannot be known.

Groups that are tried come from how pairs of workers agree beyond chance: those that agree among each other more than
any of them does with others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc

from pmflib.core.arrays import BoolArray, FloatArray, IntArray
from pmflib.core.blocks import SparseBlock
from pmflib.core.comparison import PairedDifference, compare_samples
from pmflib.crowd.dawid_skene import fit_crowd
from pmflib.crowd.e_step import (
    LabelsInMemory,
    LogWeights,
)
from pmflib.model.row_tables import score_block
from pmflib.solvers.crowd.annotator_model import AnnotatorModel

STANDARD_ERRORS = 5.0
"""Standard errors by which labels must be likelier if a group copies: tasks are taken for independent there, and the
best of several groups is taken. Chosen on planted groups and the tuned half of benchmarks/crowd/regimes.py."""
MOST_GROUPS = 6
"""Groups that are tried, those first that differ most from the rest: each costs a fit."""
LEAST_ALIKE = 0.85
"""Share of a group's labels that are the same from which on they count once: of fewer, each still says something of its
own, and as one they would say less than all other labels that depend on each other [tests/crowd/test_confidence.py]."""
LEAST_GAP = 0.1
"""By how much workers of a group must agree more with each other than with others, beyond chance, to be tried."""
AGREEMENT_ERRORS = 2.0
"""Standard errors that are taken off the agreement of two workers: of few common tasks it is not known."""
COMPARED = AnnotatorModel(variational=False, votes=False)
"""Model of workers who label independently: shrunk confusion matrices, of which the likelihood is that of labels."""


@dataclass(frozen=True)
class CopiedGroup:
    """Workers who repeat each other's labels.

    Parameters
    ----------
    workers
        Indices of the workers, increasing.
    alike
        Share of their labels that are the same as the first one of the group for the task.
    gain
        By how much the labels of a task are likelier if these are copied, nats, and the standard error of that.
    """

    workers: tuple[int, ...]
    alike: float
    gain: PairedDifference

    @property
    def is_clear(self) -> bool:
        """Whether it is a group that counts once: labels are alike, and surely likelier if they are copied."""
        surely = self.gain.mean > STANDARD_ERRORS * self.gain.error
        return surely and self.alike >= LEAST_ALIKE


def find_copied_groups(labels: SparseBlock, n_workers: int, n_classes: int) -> list[CopiedGroup]:
    """Find groups of workers who repeat each other's labels, the one first that explains most.

    Parameters
    ----------
    labels
        Tasks as rows, labels as levels ``worker * n_classes + class``.
    n_workers, n_classes
        Number of workers and of classes.

    Returns
    -------
    Groups without a worker in common; none has more than half of the workers who gave labels.

    Notes
    -----
    A fit for all labels, and one for each group that is tried, at most six, again for each group that is found. A log
    where no workers agree with each other more than with all others costs its pairs of labels alone, of which about a
    million are looked at.

    References
    ----------
    Dong, Berti-Equille, Srivastava (2009), VLDB, for copying as a model of labels beside the truth.
    """
    found: list[CopiedGroup] = []
    left = _propose_groups(labels, n_workers, n_classes) if n_classes > 1 else []
    while left:
        independent = _score_tasks(labels, n_workers, n_classes)
        tried = [_try_group(labels, each, n_workers, n_classes, independent) for each in left]
        clear = [group for group in tried if group.is_clear]
        if not clear:
            break
        best = max(clear, key=lambda group: group.gain.mean)
        found.append(best)
        labels = drop_repeated(labels, [best.workers], n_classes)
        left = [group.workers for group in clear if not {*group.workers} & {*best.workers}]
    return found


def drop_repeated(
    labels: SparseBlock, groups: Sequence[Sequence[int]], n_classes: int
) -> SparseBlock:
    """The same tasks with the first label of each group alone.

    Parameters
    ----------
    labels, n_classes
        As for `find_copied_groups`.
    groups
        Workers of each.
    """
    for workers in groups:
        later, _ = _mark_later(labels, workers, n_classes)
        labels = labels.keep(~later)
    return labels


def weigh_group(
    labels: SparseBlock, workers: Sequence[int], n_classes: int
) -> tuple[tuple[int, float], ...]:
    """Weight of each worker of a group, by which their labels for a task count as one together.

    Parameters
    ----------
    labels, n_classes
        As for `find_copied_groups`.
    workers
        The group; each has given labels.

    Returns
    -------
    Worker and weight: the mean over the worker's tasks of one over the labels that the group has given.
    """
    givers, rows = labels.indices // n_classes, _list_rows(labels)
    of_group = np.flatnonzero(np.isin(givers, workers))
    given = np.bincount(rows[of_group], minlength=labels.n_rows)
    owners, shares = givers[of_group], 1.0 / given[rows[of_group]]
    return tuple((worker, float(shares[owners == worker].mean())) for worker in workers)


def _propose_groups(labels: SparseBlock, n_workers: int, n_classes: int) -> list[tuple[int, ...]]:
    """Workers who agree more with each other than any of them with others, those first of whom that is most true.

    Pairs are joined from those that agree most to those that agree least: groups that others join late stand out.
    """
    first, second, agreement = _measure_agreement(labels, n_workers, n_classes)
    most = np.unique(labels.indices // n_classes).size // 2
    group_of, members = np.arange(n_workers), {worker: [worker] for worker in range(n_workers)}
    joined: dict[int, float] = {}
    gaps: list[tuple[float, list[int]]] = []
    for pair in np.argsort(-agreement, kind="stable").tolist():
        one, other = int(group_of[first[pair]]), int(group_of[second[pair]])
        if one == other:
            continue
        for group in (one, other):
            if group in joined:
                gaps.append((joined.pop(group) - float(agreement[pair]), members[group]))
        group_of[members[other]] = one
        members[one] = members[one] + members.pop(other)
        joined[one] = float(agreement[pair])
    gaps += [(agreed, members[group]) for group, agreed in joined.items()]
    standing = [each for each in gaps if each[0] > LEAST_GAP and len(each[1]) <= most]
    standing.sort(key=lambda each: -each[0])
    return [tuple(sorted(group)) for _, group in standing[:MOST_GROUPS]]


def _measure_agreement(
    labels: SparseBlock, n_workers: int, n_classes: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """Pairs of workers with enough tasks in common who surely agree beyond chance, and how much: Cohen's kappa."""
    several = np.flatnonzero(np.diff(labels.indptr) > 1)
    lengths = np.diff(labels.indptr)[several]
    n_pairs = int((lengths * (lengths - 1) // 2).sum())
    labels = labels.take(several[:: max(1, -(-n_pairs // MOST_LABEL_PAIRS))])
    workers, codes = np.divmod(labels.indices.astype(np.int64), n_classes)
    one, other, _ = list_label_pairs(labels)
    keys, indices, n_common = np.unique(
        workers[one] * n_workers + workers[other], return_inverse=True, return_counts=True
    )
    n_alike = np.bincount(indices, codes[one] == codes[other], minlength=keys.size)
    given = np.bincount(labels.indices, minlength=n_workers * n_classes).reshape(-1, n_classes)
    shares = given / np.maximum(given.sum(axis=1, keepdims=True), 1)
    first, second = np.divmod(keys, n_workers)
    chance = (shares[first] * shares[second]).sum(axis=1)
    alike = (n_alike + 1.0) / (n_common + 2.0)
    surely = alike - AGREEMENT_ERRORS * np.sqrt(alike * (1 - alike) / n_common)
    agreement = (surely - chance) / np.maximum(1 - chance, np.finfo(np.float64).eps)
    kept = (n_common >= LEAST_COMMON) & (agreement > 0)
    return first[kept], second[kept], agreement[kept]


def _score_tasks(labels: SparseBlock, n_workers: int, n_classes: int) -> FloatArray:
    """Log-probability of each task's labels if all workers label independently given the truth, (n_tasks,), nats."""
    model = fit_crowd(LabelsInMemory(labels, n_workers, n_classes), COMPARED).parameters
    weights = LogWeights.from_model(model, with_votes=False)
    offsets = np.arange(n_workers + 1, dtype=np.int64) * n_classes
    log_probs = np.empty(labels.n_rows)
    no_posteriors = np.empty((labels.n_rows, 0))
    score_block(labels, offsets, weights.states, weights.labels, log_probs, no_posteriors)
    return log_probs


def _try_group(
    labels: SparseBlock,
    workers: tuple[int, ...],
    n_workers: int,
    n_classes: int,
    independent: FloatArray,
) -> CopiedGroup:
    """Compare that workers copy with that they label independently, of which the log-probability of tasks is given."""
    later, first = _mark_later(labels, workers, n_classes)
    codes = labels.indices % n_classes
    given, repeated = codes[later], codes[first[later]]
    same = given == repeated
    alike = (same.sum() + 0.5) / (same.size + 1.0)
    shares = np.bincount(given, minlength=n_classes) + 0.5
    shares /= shares.sum()
    differing = np.log((1 - alike) * shares[given] / (1 - shares[repeated]))
    log_probs = np.where(same, np.log(alike), differing)
    rows = _list_rows(labels)[later]
    copied = _score_tasks(labels.keep(~later), n_workers, n_classes)
    copied += np.bincount(rows, log_probs, minlength=labels.n_rows)
    return CopiedGroup(workers, float(alike), compare_samples(copied, independent))


def _mark_later(
    labels: SparseBlock, workers: Sequence[int], n_classes: int
) -> tuple[BoolArray, IntArray]:
    """Labels of a group that are not its first for the task, (n_labels,), and of each label the place of that first."""
    rows = _list_rows(labels)
    inside = np.isin(labels.indices // n_classes, workers)
    places = np.flatnonzero(inside)
    first = np.zeros(labels.n_rows, np.int64)
    # of equal rows the last assignment counts: the first label
    first[rows[places[::-1]]] = places[::-1]
    return inside & (first[rows] != np.arange(rows.size)), first[rows]


def _list_rows(labels: SparseBlock) -> IntArray:
    """Task of each label, (n_labels,)."""
    return np.repeat(np.arange(labels.n_rows), np.diff(labels.indptr))


MOST_LABEL_PAIRS = 1 << 20
"""Pairs of labels of the same task that are looked at, about: of more, tasks are taken evenly from all."""
BYTES_OF_PAIR = 96
"""Bytes of a pair of labels of the same task, with what is made of it."""
LEAST_COMMON = 8
"""Tasks in common below which two workers are not compared."""
CHUNK_PAIRS = 1 << 17
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
        Indices of the workers.
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
            int(keys[index] // n_workers),
            int(keys[index] % n_workers),
            float(shared[index]),
            float(expected[index]),
        )
        for index in order
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
    first, second, at = list_label_pairs(block)
    # workers increase within a task
    keys, indices, n_common = np.unique(
        worker[first] * n_workers + worker[second], return_inverse=True, return_counts=True
    )
    kept = n_common >= LEAST_COMMON
    numbers = np.cumsum(kept) - 1
    compared = np.flatnonzero(kept[indices])
    sums = np.zeros((2, int(kept.sum())))
    for start in range(0, compared.size, CHUNK_PAIRS):
        some = compared[start : start + CHUNK_PAIRS]
        one, other, row = first[some], second[some], at[some]
        ours = np.where(label[one] == label[other], wrong[one], 0.0)
        others_wrong = wrong_all[row] - wrong[one] - wrong[other]
        others_usual = usual_all[row] - usual[one] - usual[other]
        hardness = (others_wrong + OTHERS_WORTH) / (others_usual + OTHERS_WORTH)
        chance = np.zeros(some.size)
        for given in range(n_classes):
            both = mistakes[worker[one], given] * mistakes[worker[other], given]
            chance += (both * posterior[row]).sum(axis=1)
        pairs = numbers[indices[some]]
        for total, added in zip(sums, (ours, chance * hardness), strict=True):
            total += np.bincount(pairs, added, minlength=total.size)
    return keys[kept], sums[0], sums[1]


def list_label_pairs(block: SparseBlock) -> tuple[IntArray, IntArray, IntArray]:
    """Places of each two labels of the same task, and the task."""
    indices = np.arange(block.n_observed)
    lengths = np.diff(block.indptr)
    tasks = np.repeat(np.arange(block.n_rows), lengths)
    after = np.repeat(block.indptr[1:], lengths) - 1 - indices
    first = np.repeat(indices, after)
    starts = np.repeat(np.cumsum(after) - after, after)
    second = first + 1 + np.arange(first.size) - starts
    return first, second, np.repeat(tasks, after)
