"""Label logs drawn at random, with their truth: the crowds of the published experiments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy.optimize import linear_sum_assignment

from pmflib.arrays import FloatArray, IntArray
from pmflib.errors import PmfError

Version: TypeAlias = Literal["code", "text"]

LEAST_PRIOR = 0.05
"""Least probability of a class in the text's published crowd."""


@dataclass(frozen=True, eq=False)
class Crowd:
    """A label log and its truth.

    Parameters
    ----------
    task, worker, label
        int64 of shape (n_labels,): the columns of the log.
    truth
        int64 of shape (n_tasks,): true class of each task.
    prior, confusion
        What it was drawn from: (n_classes,), and (n_workers, n_classes, n_classes), labels by true class.
    """

    task: IntArray
    worker: IntArray
    label: IntArray
    truth: IntArray
    prior: FloatArray
    confusion: FloatArray

    @property
    def log(self) -> dict[str, IntArray]:
        """The log as a table."""
        return {"task": self.task, "worker": self.worker, "label": self.label}

    def measure(self, prior: FloatArray, confusion: FloatArray) -> float:
        """Mean squared error of an estimate, under the order of classes that suits it best.

        Parameters
        ----------
        prior, confusion
            As those of the crowd: (n_classes,), and (n_workers, n_classes, n_classes).

        References
        ----------
        Ibrahim, Fu (2021), ICML, equation (19).
        """
        n_classes = prior.size
        actual, found = self.confusion.reshape(-1, n_classes), confusion.reshape(-1, n_classes)
        costs = ((actual[:, :, None] - found[:, None, :]) ** 2).sum(axis=0)
        columns = linear_sum_assignment(costs)[1]
        error = ((self.prior - prior[columns]) ** 2).sum()
        error += ((actual - found[:, columns]) ** 2).sum()
        return float(error / (len(actual) + 1))


def draw_published_crowd(
    n_tasks: int,
    rng: np.random.Generator,
    *,
    version: Version = "code",
    n_workers: int = 25,
    n_classes: int = 3,
    observed: float = 0.3,
) -> Crowd:
    """Draw a crowd as the published synthetic experiment does.

    Parameters
    ----------
    n_tasks, n_workers, n_classes
        Sizes.
    rng
        Source of randomness.
    version
        "code": one worker near the identity, the others' columns uniform numbers scaled to sum 1, all classes
        equally probable. "text": columns and prior are Dirichlet(1, ..., 1), no class rarer than ``LEAST_PRIOR``, and
        one worker within 0.1 of the identity.
    observed
        Probability that a worker labels a task.

    Raises
    ------
    PmfError
        If the version is unknown.

    References
    ----------
    Ibrahim, Fu (2021), ICML, section 5; its released code draws otherwise than its text says.
    """
    if version == "code":
        confusion = rng.random((n_workers, n_classes, n_classes))
        expert = np.eye(n_classes) + rng.uniform(0, 0.25, (n_classes, 1))
        prior = np.full(n_classes, 1.0 / n_classes)
    elif version == "text":
        confusion = rng.dirichlet(np.ones(n_classes), (n_workers, n_classes)).transpose(0, 2, 1)
        noise = rng.dirichlet(np.ones(n_classes), n_classes).T
        expert = 0.9 * np.eye(n_classes) + 0.1 * noise
        prior = rng.dirichlet(np.ones(n_classes))
        while prior.min() < LEAST_PRIOR:
            prior = rng.dirichlet(np.ones(n_classes))
    else:
        raise PmfError(f"version is {version!r}; give 'code' or 'text'")
    confusion[rng.integers(n_workers)] = expert
    confusion /= confusion.sum(axis=1, keepdims=True)
    truth = rng.choice(n_classes, n_tasks, p=prior)
    task, worker = np.nonzero(rng.random((n_tasks, n_workers)) < observed)
    label = draw_labels(confusion[worker, :, truth[task]], rng)
    return Crowd(task, worker, label, truth, prior, confusion)


def draw_labels(probabilities: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw a label for each row of probabilities, (n_rows, n_classes): int64 of shape (n_rows,)."""
    edges = np.cumsum(probabilities[:, :-1], axis=1)
    labels: IntArray = (rng.random((len(probabilities), 1)) > edges).sum(axis=1)
    return labels
