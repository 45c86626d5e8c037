"""Find workers who copy: groups that repeat each other's labels count once, pairs with the same mistakes are reported.

Workers who copy agree with each other, and so do accurate workers; the other workers distinguish the two cases. If a
group is accurate and independent, its labels are the truth, which explains the agreement of the others. If it copies,
the others agree beyond what the labels of the group explain. Therefore two models are compared by their likelihood. In
the first, all workers label independently given the truth. In the second, the first label of a group for a task depends
on the truth, and the later labels of the group for that task only on the first one: they equal it with a probability
that is estimated. A group is accepted if the second model is better by several standard errors over the tasks. This is
not possible where copies are a small part of the labels, or the group has half of the workers.

Candidates are groups whose workers agree with each other, beyond chance, more than with any other worker. Agreement is
pooled over all pairs of two groups: single pairs of workers have few common tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc

from pmflib.apps.crowd.dawid_skene import fit_crowd
from pmflib.apps.crowd.e_step import (
    LabelsInMemory,
    LogWeights,
)
from pmflib.apps.crowd.pairs.annotator_model import AnnotatorModel
from pmflib.base.arrays import BoolArray, FloatArray, IntArray
from pmflib.base.blocks import SparseBlock
from pmflib.base.comparison import PairedDifference, compare_samples
from pmflib.model.row_tables import score_block

STANDARD_ERRORS = 4.0
"""Standard errors by which labels must be likelier if a group copies: the test treats tasks as independent, and several
groups are tried. Groups of two need one more: they are the most numerous. Drawn copies as in
tests/apps/crowd/test_copied_labels.py have 4.3 and more, drawn honest groups at most 3.4."""
MOST_GROUPS = 6
"""Limit of the number of groups that are tried, those with the largest gap first: each costs a fit."""
LEAST_ALIKE = 0.85
"""Smallest share of equal labels in a group that counts once: below it, labels carry information of their own
[tests/apps/crowd/test_confidence.py]."""
LEAST_GAP = 0.1
"""Smallest difference between the agreement within a group and that with others, beyond chance, of a candidate."""
AGREEMENT_ERRORS = 2.0
"""Standard errors that are subtracted from an agreement, which few common tasks determine poorly."""
LEAST_POOLED = 4
"""Common tasks below which an agreement is not used."""
MOST_WORKERS = 300
"""Limit of the number of workers that are grouped, those with most labels: the time grows with its cube."""
COMPARED = AnnotatorModel(variational=False, votes=False)
"""Model of independent workers: shrunk confusion matrices whose likelihood is that of the labels."""


@dataclass(frozen=True)
class CopiedGroup:
    """Workers who repeat each other's labels.

    Parameters
    ----------
    workers
        Indices of the workers, increasing.
    alike
        Share of their labels that equal the first label of the group for the task.
    gain
        Gain in log-likelihood of a task if labels are copied, nats, with its standard error.
    """

    workers: tuple[int, ...]
    alike: float
    gain: PairedDifference

    @property
    def is_clear(self) -> bool:
        """Whether the labels of the group count once: they are alike, and clearly likelier if copied."""
        needed = STANDARD_ERRORS + (len(self.workers) == 2)
        surely = self.gain.mean > needed * self.gain.error
        return surely and self.alike >= LEAST_ALIKE


def find_copied_groups(labels: SparseBlock, n_workers: int, n_classes: int) -> list[CopiedGroup]:
    """Find groups of workers who repeat each other's labels, by decreasing gain.

    Parameters
    ----------
    labels
        Tasks as rows, labels as levels ``worker * n_classes + class``.
    n_workers, n_classes
        Number of workers and of classes.

    Returns
    -------
    Disjoint groups; none has more than half of the workers who gave labels.

    Notes
    -----
    The cost is one fit of all labels and one for each candidate, at most six, repeated after each group that is found.
    Without candidates it is only the comparison of about a million pairs of labels.

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
    """Keep only the first label of each group for a task.

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
    """Weight of each worker of a group, such that the labels of the group for a task count as one.

    Parameters
    ----------
    labels, n_classes
        As for `find_copied_groups`.
    workers
        Workers of the group; each has given labels.

    Returns
    -------
    Worker and weight: the mean over the worker's tasks of one over the number of labels of the group.
    """
    givers, rows = labels.indices // n_classes, _list_rows(labels)
    of_group = np.flatnonzero(np.isin(givers, workers))
    given = np.bincount(rows[of_group], minlength=labels.n_rows)
    owners, shares = givers[of_group], 1.0 / given[rows[of_group]]
    return tuple((worker, float(shares[owners == worker].mean())) for worker in workers)


def _propose_groups(labels: SparseBlock, n_workers: int, n_classes: int) -> list[tuple[int, ...]]:
    """Propose groups whose workers agree with each other more than with any other worker, by decreasing gap.

    Average-linkage clustering: groups are joined by decreasing pooled agreement, and those that stay separate long
    stand out.
    """
    workers, pooled = _pool_agreement(labels, n_workers, n_classes)
    members = [[int(worker)] for worker in workers]
    joined: dict[int, float] = {}
    gaps: list[tuple[float, list[int]]] = []
    agreement = _bound_kappa(pooled)
    while agreement.size and agreement.max() > 0:
        pair = np.unravel_index(int(agreement.argmax()), agreement.shape)
        one, other = sorted(map(int, pair))
        agreed = float(agreement[one, other])
        for group in (one, other):
            if group in joined:
                gaps.append((joined.pop(group) - agreed, members[group]))
        members[one] = members[one] + members[other]
        joined[one] = agreed
        pooled[:, one] += pooled[:, other]
        pooled[:, :, one] = pooled[:, one]
        pooled[:, one, one] = pooled[:, other] = pooled[:, :, other] = 0.0
        agreement[other] = agreement[:, other] = 0.0
        agreement[one] = agreement[:, one] = _bound_kappa(pooled[:, one])
    gaps += [(agreed, members[group]) for group, agreed in joined.items()]
    most = np.unique(labels.indices // n_classes).size // 2
    standing = [each for each in gaps if each[0] > LEAST_GAP and len(each[1]) <= most]
    standing.sort(key=lambda each: -each[0])
    return [tuple(sorted(group)) for _, group in standing[:MOST_GROUPS]]


def _pool_agreement(
    labels: SparseBlock, n_workers: int, n_classes: int
) -> tuple[IntArray, FloatArray]:
    """Workers with most labels; common tasks, equal labels and those by chance of their pairs, (3, n_kept, n_kept)."""
    from scipy.sparse import csr_array

    several = np.flatnonzero(np.diff(labels.indptr) > 1)
    lengths = np.diff(labels.indptr)[several]
    n_pairs = int((lengths * (lengths - 1) // 2).sum())
    labels = labels.take(several[:: max(1, -(-n_pairs // MOST_LABEL_PAIRS))])
    shape = labels.n_rows, n_workers * n_classes
    marks = csr_array((np.ones(labels.n_observed), labels.indices, labels.indptr), shape)
    given: FloatArray = marks.sum(axis=0).reshape(n_workers, n_classes)
    workers = np.sort(np.argsort(-given.sum(axis=1), kind="stable")[:MOST_WORKERS])
    by_class = [marks[:, workers * n_classes + code] for code in range(n_classes)]
    shares = given[workers] / np.maximum(given[workers].sum(axis=1, keepdims=True), 1)
    all_labels = csr_array(sum(by_class[1:], by_class[0]))
    common = (all_labels.T @ all_labels).toarray()
    alike = np.sum([(each.T @ each).toarray() for each in by_class], axis=0)
    pooled = np.stack([common, alike, common * (shares @ shares.T)])
    pooled[:, np.arange(workers.size), np.arange(workers.size)] = 0.0
    return workers, pooled


def _bound_kappa(pooled: FloatArray) -> FloatArray:
    """Lower bounds of Cohen's kappa; 0 where they are below, or too few tasks are common."""
    common, alike, expected = pooled
    several = np.maximum(common, 1.0)
    share, chance = (alike + 1.0) / (common + 2.0), expected / several
    surely = share - AGREEMENT_ERRORS * np.sqrt(share * (1 - share) / several)
    kappa = (surely - chance) / np.maximum(1 - chance, np.finfo(np.float64).eps)
    return np.where(common >= LEAST_POOLED, np.maximum(kappa, 0.0), 0.0)


def _score_tasks(labels: SparseBlock, n_workers: int, n_classes: int) -> FloatArray:
    """Log-probability of each task's labels for independent workers, (n_tasks,), nats."""
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
    """Compare the model in which workers copy with that of independent ones, given its log-probability of tasks."""
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
    """Mark the labels of a group after its first for the task, (n_labels,), and find the position of that first."""
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
"""Approximate limit of the pairs of labels of the same task; larger logs are thinned evenly."""
BYTES_OF_PAIR = 96
"""Memory for a pair of labels of the same task, bytes."""
LEAST_COMMON = 8
"""Workers with fewer common tasks are not compared."""
CHUNK_PAIRS = 1 << 17
"""Number of pairs of labels in memory at a time."""
OTHERS_WEIGHT = 1.0
"""Pseudo-count of wrong labels of the other workers of a task, in its difficulty."""
LEAST_SHARED = 4.0
"""Pairs of workers with fewer wrong labels in common are not reported."""
BY_CHANCE = 0.01
"""Probability that a log without copies has any reported pair."""


@dataclass(frozen=True)
class Copies:
    """Two workers with the same mistakes.

    Parameters
    ----------
    first, second
        Indices of the workers.
    shared, expected
        Expected number of equal wrong labels by the posterior, and by chance.
    """

    first: int
    second: int
    shared: float
    expected: float


def find_copies(labels: SparseBlock, posterior: FloatArray, confusion: FloatArray) -> list[Copies]:
    """Find pairs of workers who give the same wrong labels more often than by chance, the rarest by chance first.

    By chance, two workers err independently given the class, according to their confusion matrices and to the
    difficulty of the task, which the wrong labels of its other workers show. The number of equal wrong labels then has
    a Poisson distribution. Its mean is scaled up if all pairs together exceed it.

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
    Pairs whose probability by chance is below ``BY_CHANCE`` divided by the number of compared pairs. Compared are pairs
    with at least ``LEAST_COMMON`` common tasks; reported pairs have at least ``LEAST_SHARED`` equal wrong labels.

    Notes
    -----
    Time and memory grow with the number of pairs of labels, which is limited to about ``MOST_LABEL_PAIRS``.
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
    # expected numbers are rounded down to whole labels
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
    """Keys of the pairs of workers with enough common tasks, their equal wrong labels, and those expected by chance."""
    n_workers, n_classes, _ = confusion.shape
    # probabilities of wrong labels, by worker and class
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
        hardness = (others_wrong + OTHERS_WEIGHT) / (others_usual + OTHERS_WEIGHT)
        chance = np.zeros(some.size)
        for given in range(n_classes):
            both = mistakes[worker[one], given] * mistakes[worker[other], given]
            chance += (both * posterior[row]).sum(axis=1)
        pairs = numbers[indices[some]]
        for total, added in zip(sums, (ours, chance * hardness), strict=True):
            total += np.bincount(pairs, added, minlength=total.size)
    return keys[kept], sums[0], sums[1]


def list_label_pairs(block: SparseBlock) -> tuple[IntArray, IntArray, IntArray]:
    """Positions of each two labels of the same task, and the task."""
    indices = np.arange(block.n_observed)
    lengths = np.diff(block.indptr)
    tasks = np.repeat(np.arange(block.n_rows), lengths)
    after = np.repeat(block.indptr[1:], lengths) - 1 - indices
    first = np.repeat(indices, after)
    starts = np.repeat(np.cumsum(after) - after, after)
    second = first + 1 + np.arange(first.size) - starts
    return first, second, np.repeat(tasks, after)
