"""Accuracy of workers with its standard error, and suspicious workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
from scipy.special import expit

from pmflib.apps.crowd.confidence import Calibration
from pmflib.apps.crowd.copied_labels import Copies
from pmflib.apps.crowd.label_counts import LabelCounts
from pmflib.apps.crowd.m_step import SHRINKAGE
from pmflib.apps.crowd.pairs.annotator_model import CrowdModel
from pmflib.base.arrays import FLOOR, BoolArray, FloatArray, IntArray


def make_worker_table(
    workers: pa.Array,
    prior: FloatArray,
    confusion: FloatArray,
    n_labels: IntArray,
    calibration: Calibration,
    classes: Sequence[str] = (),
) -> pa.Table:
    """Make a table with a row per worker: worker, accuracy, n_labels, skill, standard_error, confusion matrix.

    Parameters
    ----------
    workers
        Names of the workers.
    prior, confusion
        float64 of shapes (n_classes,) and (n_workers, n_classes, n_classes), for the accuracy.
    n_labels
        int64 of shape (n_workers,): number of labels of each worker.
    calibration
        Calibration, for the skill: see `measure_skills`.
    classes
        Names of the classes, for the columns of the confusion matrices; empty leaves these out.
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
    """Probability that each worker labels a random task correctly, (n_workers,)."""
    return np.asarray(np.diagonal(confusion, axis1=1, axis2=2) @ prior)


def measure_skills(model: CrowdModel) -> tuple[FloatArray, FloatArray]:
    """Probability that each worker labels a random task correctly, and its standard error, both (n_workers,).

    The probability is the mean of the diagonal of the worker's confusion matrix under the class prior. The standard
    error combines the prior variance of the log odds of skills with the information of the labels: the skill of a
    worker without labels is that of all workers, with a large error.

    Parameters
    ----------
    model
        Crowd model with one subclass, from a calibration: its labels count by calibrated posteriors.
    """
    skill = measure_accuracy(model.prior, model.confusion)
    pseudo_labels = model.pseudo_count * model.n_classes
    n_labels = np.maximum(model.mass.sum(axis=(1, 2)) - pseudo_labels, 0.0)
    spread = skill * (1 - skill)
    information = n_labels * spread + 1 / SHRINKAGE.skill_variance
    return skill, np.asarray(spread / np.sqrt(information))


LEAST_LABELS = 10
"""Workers with fewer labels are never suspicious."""
STANDARD_ERRORS = 2.0
"""Standard errors by which a share of correct labels must be below chance."""
RARE_BY_CHANCE = 1e-3
"""A worker who always gives one label is suspicious if random tasks would all be of that class with a probability
below this."""


@dataclass(frozen=True)
class GuessMixture:
    """Parameters of `find_guessers`; chosen on the regimes of benchmarks/panels/labels.py with and without guesses.

    Parameters
    ----------
    noise
        Factor of the binomial variance of a share of correct labels, because correct labels are only known by their
        posteriors.
    spread
        Standard deviation of the agreement of honest workers beyond chance.
    share, share_workers
        Prior share of guessers, and the number of workers that it is worth.
    certainty
        Posterior probability above which a worker is taken for a guesser.
    n_steps
        Number of EM steps.
    """

    noise: float = 1.5
    spread: float = 0.15
    share: float = 0.1
    share_workers: float = 10.0
    certainty: float = 0.7
    n_steps: int = 50


GUESS_MIXTURE = GuessMixture()


def find_guessers(n_labels: IntArray, right: FloatArray, chance: FloatArray) -> BoolArray:
    """Find workers whose labels are no better than chance, by a mixture of guessers and honest workers.

    The agreement of a worker beyond chance has mean 0 for guessers. For honest workers it has a normal distribution,
    whose mean is estimated by EM, like the share of guessers. Workers of low accuracy are thus told from guessers only
    if they gave enough labels.

    Parameters
    ----------
    n_labels
        int64 of shape (n_workers,).
    right, chance
        float64 of shape (n_workers,): share of correct labels, and that share by chance.

    Returns
    -------
    bool of shape (n_workers,). False for workers who are worse than chance, or gave fewer than ``LEAST_LABELS`` labels.
    """
    mixture = GUESS_MIXTURE
    room = np.maximum(1.0 - chance, FLOOR)
    agreement = (right - chance) / room
    errors = mixture.noise * np.maximum(chance, FLOOR) / room / np.maximum(n_labels, 1)
    judged = (n_labels >= LEAST_LABELS) & (agreement > -STANDARD_ERRORS * np.sqrt(errors))
    guessed = np.zeros(n_labels.size)
    if not judged.any():
        return guessed > 0
    agreement, errors = agreement[judged], errors[judged]
    own = mixture.spread**2 + errors
    share, mean = mixture.share, float(np.quantile(agreement, 0.75))
    probability = guessed[judged]
    for _ in range(mixture.n_steps):
        guess = np.log(share) - 0.5 * (agreement**2 / errors + np.log(errors))
        honest = np.log1p(-share) - 0.5 * ((agreement - mean) ** 2 / own + np.log(own))
        probability = expit(guess - honest)
        weight = (1.0 - probability) / own
        mean = float(weight @ agreement) / max(float(weight.sum()), FLOOR)
        before = mixture.share * mixture.share_workers
        share = (float(probability.sum()) + before) / (probability.size + mixture.share_workers)
    guessed[judged] = probability
    return np.asarray(guessed > mixture.certainty)


class SuspiciousWorker(TypedDict):
    """A worker whose labels are chance or worse, always the same, or copied: see `find_suspicious`.

    The name has the type of names in the log.
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
    groups: Sequence[Sequence[int]] = (),
) -> list[SuspiciousWorker]:
    """List workers whose labels are chance or worse, always the same, or copied, the worst first.

    Parameters
    ----------
    counts
        Sums over the tasks of the log.
    workers, classes
        Names.
    prior
        float64 of shape (n_classes,), probabilities.
    copies
        As from `find_copies`; both workers are listed, since it is not known who copied.
    groups
        Workers of each group who repeat each other; all of them are listed.

    Returns
    -------
    Worker, reason in words, number of labels, share of correct labels, and that share by chance: for labels with the
    same frequencies, given regardless of the task. Worse than chance means ``STANDARD_ERRORS`` standard errors below
    it: such workers may be adversaries, or mistake the classes. No better than chance are guessers, see
    `find_guessers`. Only workers with at least ``LEAST_LABELS`` labels are listed.
    """
    n_labels = counts.given.sum(axis=1)
    partners: dict[int, list[tuple[int, Copies]]] = {}
    for pair in copies:
        partners.setdefault(pair.first, []).append((pair.second, pair))
        partners.setdefault(pair.second, []).append((pair.first, pair))
    several = np.maximum(n_labels, 1)
    right, chance = counts.right / several, (counts.given / several[:, None]) @ prior
    guessers = find_guessers(n_labels, right, chance)
    sizes = {worker: len(group) for group in groups for worker in group}
    found: list[SuspiciousWorker] = []
    for worker in map(int, np.flatnonzero(n_labels >= LEAST_LABELS)):
        usual, n = int(counts.given[worker].argmax()), int(n_labels[worker])
        reasons = []
        error = np.sqrt(chance[worker] * (1 - chance[worker]) / n)
        if right[worker] < chance[worker] - STANDARD_ERRORS * error:
            reasons.append("worse than chance")
        if counts.given[worker, usual] == n and prior[usual] ** n < RARE_BY_CHANCE:
            reasons.append(f"always {classes[usual]!r}")
        elif guessers[worker]:
            reasons.append("no better than chance")
        if worker in sizes:
            reasons.append(f"one of {sizes[worker]} who repeat each other")
        if worker in partners:
            other, pair = partners[worker][0]
            more = f" and of {len(partners[worker]) - 1} more" if partners[worker][1:] else ""
            reasons.append(
                f"has the mistakes of {workers[other]!r}{more}: {pair.shared:.0f} in common, {pair.expected:.1f} "
                "expected by chance"
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
