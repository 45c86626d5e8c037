"""Which task to have labelled again, and by whom: where a label is expected to say most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import xlogy

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.crowd.confidence import Calibration

MOST_WORKERS = 512
"""Workers that are compared for a task: of more, those whose labels say most of a task of which nothing is known."""
LEAST_TASKS = 1024
"""Tasks that are compared, at least, the most uncertain of all: a worker may say more of another than of the first."""
MOST_CELLS = 1 << 21
"""Most tasks times workers times classes that are worked on at a time."""


def measure_uncertainty(probabilities: FloatArray) -> FloatArray:
    """Entropy of the class of each task, (n_tasks,), nats."""
    return np.asarray(-xlogy(probabilities, probabilities).sum(axis=1))


def measure_label_gains(probabilities: FloatArray, confusion: FloatArray) -> FloatArray:
    """Expected reduction of the entropy of each task's class by a label of each worker, nats.

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
    """Confusion matrices of labels that count with the power of a calibration, (n_workers, n_classes, n_classes).

    What a label says beyond those that a task has is less than what it says alone.
    """
    blurred = calibration.rounds[-1].model.confusion ** min(calibration.power, 1.0)
    return np.asarray(blurred / blurred.sum(axis=1, keepdims=True))


def choose_questions(
    probabilities: FloatArray,
    calibration: Calibration,
    asked: Sequence[IntArray],
    n_questions: int,
) -> tuple[IntArray, IntArray, FloatArray]:
    """Choose tasks, and for each the worker whose label is expected to reduce the entropy of its class most.

    Parameters
    ----------
    probabilities
        float64 of shape (n_tasks, n_classes), calibrated.
    calibration
        What they were calibrated by.
    asked
        Workers who have labelled each task.
    n_questions
        Most tasks that are chosen.

    Returns
    -------
    Tasks, their workers and the expected gains in nats, the largest first, of equals the most uncertain; a task at most
    once. A task that all workers who are compared have labelled has worker -1 and gains nothing: somebody new may be
    asked. At most ``MOST_WORKERS`` workers are compared.
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
