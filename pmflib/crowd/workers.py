"""How good workers are and how well that is known, workers who share mistakes, and workers who are suspicious."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
from scipy.special import gammainc

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.blocks import SparseBlock
from pmflib.crowd.confidence import Calibration
from pmflib.crowd.label_counts import LabelCounts
from pmflib.solvers.crowd.annotator_model import CrowdModel
from pmflib.solvers.crowd.shrinkage import SHRINKAGE


def make_worker_table(
    workers: pa.Array,
    prior: FloatArray,
    confusion: FloatArray,
    n_labels: IntArray,
    calibration: Calibration,
    classes: Sequence[str] = (),
) -> pa.Table:
    """Make a row per worker: worker, accuracy, n_labels, skill, standard_error, and PMFs of the labels by true class.

    Parameters
    ----------
    workers
        Names of the workers.
    prior, confusion
        float64 of shapes (n_classes,) and (n_workers, n_classes, n_classes): the accuracy is theirs.
    n_labels
        int64 of shape (n_workers,): number of labels that each worker gave.
    calibration
        What the skill is measured by: see `measure_skills`.
    classes
        Names of the classes, for the columns of the PMFs; without names there are none.
    """
    skill, error = measure_skills(calibration.rounds[-1].model)
    columns = {
        "worker": workers,
        "accuracy": measure_accuracy(prior, confusion),
        "n_labels": n_labels,
        "skill": skill,
        "standard_error": error,
    }
    for true, name in enumerate(classes):
        for label, given in enumerate(classes):
            columns[f"probability.{given}|{name}"] = confusion[:, label, true]
    return pa.table(columns)


def measure_accuracy(prior: FloatArray, confusion: FloatArray) -> FloatArray:
    """Probability that a worker labels a task drawn at random right, (n_workers,)."""
    return np.asarray(np.diagonal(confusion, axis1=1, axis2=2) @ prior)


def measure_skills(model: CrowdModel) -> tuple[FloatArray, FloatArray]:
    """Probability that a worker labels a task drawn at random right, and its standard error, both (n_workers,).

    The probability is the mean of the diagonal of the worker's confusion matrix under the class prior. Its log odds
    have the prior variance of skills, and every label has the information of one that is right as often: of a worker
    without a label, the skill is that of all workers, and hardly known.

    Parameters
    ----------
    model
        Crowd model with one subclass: that of a calibration, whose labels count by calibrated posteriors.
    """
    skill = measure_accuracy(model.prior, model.confusion)
    pseudo_labels = model.pseudo_count * model.n_classes
    n_labels = np.maximum(model.mass.sum(axis=(1, 2)) - pseudo_labels, 0.0)
    spread = skill * (1 - skill)
    information = n_labels * spread + 1 / SHRINKAGE.skill_variance
    return skill, np.asarray(spread / np.sqrt(information))


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


LEAST_LABELS = 10
"""Labels below which nothing is said of a worker."""
STANDARD_ERRORS = 2.0
"""Standard errors by which a share of right labels must be below chance to be called so."""
RARE_BY_CHANCE = 1e-3
"""Probability that tasks drawn at random all have one class, below which it is odd that a worker always names it."""


class SuspiciousWorker(TypedDict):
    """A worker whose labels are worse than chance, always the same, or another's: see `find_suspicious`.

    Its name is of whatever type the log has names of.
    """

    worker: Any
    reason: str
    n_labels: int
    right: float
    by_chance: float


def find_suspicious(
    counts: LabelCounts,
    workers: Sequence[str],
    classes: Sequence[str],
    prior: FloatArray,
    copies: Sequence[Copies] = (),
) -> list[SuspiciousWorker]:
    """List workers whose labels are worse than chance, always the same, or another's, the worst first.

    Parameters
    ----------
    counts
        Sums over the tasks of the log.
    workers, classes
        Names.
    prior
        float64 of shape (n_classes,), probabilities.
    copies
        As from `find_copies`; both workers are listed, for who copied is not known.

    Returns
    -------
    Worker, reason in words, number of labels, share of them that are right, and what that would be by chance: of
    labels that are given as often, but without a look at the task. It is worse than chance if it is
    ``STANDARD_ERRORS`` of a share below. Only workers with at least ``LEAST_LABELS`` labels.
    """
    n_labels = counts.given.sum(axis=1)
    partners: dict[int, list[tuple[int, Copies]]] = {}
    for pair in copies:
        partners.setdefault(pair.first, []).append((pair.second, pair))
        partners.setdefault(pair.second, []).append((pair.first, pair))
    several = np.maximum(n_labels, 1)
    right, chance = counts.right / several, (counts.given / several[:, None]) @ prior
    found: list[SuspiciousWorker] = []
    for worker in map(int, np.flatnonzero(n_labels >= LEAST_LABELS)):
        usual, n = int(counts.given[worker].argmax()), int(n_labels[worker])
        reasons = []
        error = np.sqrt(chance[worker] * (1 - chance[worker]) / n)
        if right[worker] < chance[worker] - STANDARD_ERRORS * error:
            reasons.append("worse than chance")
        if counts.given[worker, usual] == n and prior[usual] ** n < RARE_BY_CHANCE:
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
