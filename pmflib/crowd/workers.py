"""How good workers are, how precisely that is known, and which workers are suspicious."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.crowd.confidence import Calibration
from pmflib.crowd.copied_labels import Copies
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
