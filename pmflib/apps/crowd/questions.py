"""Choose tasks to have labelled again, and the workers to ask, by expected information gain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import xlogy

from pmflib.apps.crowd.confidence import Calibration
from pmflib.base.arrays import FloatArray, IntArray

MOST_WORKERS = 512
"""Limit of the number of workers that are compared: those whose labels are most informative about a random task."""
LEAST_TASKS = 1024
"""Number of tasks that are compared at least, the most uncertain ones: a label may help one of them more than the most
uncertain task."""
MOST_CELLS = 1 << 21
"""Limit of tasks times workers times classes in memory at a time."""


def measure_uncertainty(probabilities: FloatArray) -> FloatArray:
    """Entropy of the class of each task, (n_tasks,), nats."""
    return np.asarray(-xlogy(probabilities, probabilities).sum(axis=1))


def measure_label_gains(probabilities: FloatArray, confusion: FloatArray) -> FloatArray:
    """Expected reduction of the entropy of each task's class by one label of each worker, nats.

    Parameters
    ----------
    probabilities
        float64 of shape (n_tasks, n_classes).
    confusion
        float64 of shape (n_workers, n_classes, n_classes): PMF of a worker's labels (second axis) by true class.

    Returns
    -------
    float64 of shape (n_tasks, n_workers), at least 0: the mutual information of label and class.

    References
    ----------
    Lindley (1956), Annals of Mathematical Statistics 27.
    """
    n_workers, n_classes, _ = confusion.shape
    noise = -xlogy(confusion, confusion).sum(axis=1)
    flat = confusion.reshape(-1, n_classes).T
    gains = np.empty((len(probabilities), n_workers))
    n_rows = max(1, MOST_CELLS // max(confusion.shape[0] * n_classes, 1))
    for start in range(0, len(probabilities), n_rows):
        some = probabilities[start : start + n_rows]
        given = (some @ flat).reshape(len(some), n_workers, n_classes)
        gains[start : start + n_rows] = -xlogy(given, given).sum(axis=2) - some @ noise.T
    return np.maximum(gains, 0.0)


def blur_confusion(calibration: Calibration) -> FloatArray:
    """Confusion matrices tempered by the power of a calibration, (n_workers, n_classes, n_classes).

    Labels of one task are dependent, so that another label is less informative than one alone.
    """
    blurred = calibration.rounds[-1].model.confusion ** min(calibration.power, 1.0)
    return np.asarray(blurred / blurred.sum(axis=1, keepdims=True))


def choose_questions(
    probabilities: FloatArray,
    calibration: Calibration,
    asked: Sequence[IntArray],
    n_questions: int,
) -> tuple[IntArray, IntArray, FloatArray]:
    """Choose tasks, and for each of them the worker whose label is expected to reduce the entropy of its class most.

    Parameters
    ----------
    probabilities
        float64 of shape (n_tasks, n_classes), calibrated.
    calibration
        Calibration of the probabilities.
    asked
        Workers who have labelled each task.
    n_questions
        Limit of the number of tasks.

    Returns
    -------
    Tasks, their workers and the expected gains in nats, sorted by gain, largest first, ties by uncertainty; each task
    at most once. The worker is -1, and the gain 0, for a task that all compared workers have labelled: ask somebody
    new. At most ``MOST_WORKERS`` workers are compared.
    """
    blurred = blur_confusion(calibration)
    known_of_nothing = calibration.rounds[-1].model.prior[None]
    alone = measure_label_gains(known_of_nothing, blurred)[0]
    workers = np.sort(np.argsort(-alone, kind="stable")[:MOST_WORKERS])
    indices = np.full(alone.size, -1)
    indices[workers] = np.arange(workers.size)
    gains = measure_label_gains(probabilities, blurred[workers])
    for row, who in enumerate(asked):
        there = indices[who]
        gains[row, there[there >= 0]] = -1.0
    if not workers.size:
        gains = np.full((len(probabilities), 1), -1.0)
        workers = np.full(1, -1)
    best = gains.argmax(axis=1)
    top = gains[np.arange(len(gains)), best]
    who = np.where(top >= 0, workers[best], -1)
    top = np.maximum(top, 0.0)
    order = np.lexsort((-measure_uncertainty(probabilities), -top))[:n_questions]
    return order, who[order], top[order]
