"""Random crowds from which label logs with known parameters are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy.optimize import linear_sum_assignment

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.errors import PmfError

Version: TypeAlias = Literal["code", "text"]

LEAST_PRIOR = 0.05
"""Smallest probability of a class in the crowd described in the paper's text."""


@dataclass(frozen=True, eq=False)
class Crowd:
    """A label log with its true parameters.

    Parameters
    ----------
    task, worker, label
        int64 of shape (n_labels,): the columns of the log.
    truth
        int64 of shape (n_tasks,): true class of each task.
    prior, confusion
        Parameters: (n_classes,), and (n_workers, n_classes, n_classes), labels by true class.
    """

    task: IntArray
    worker: IntArray
    label: IntArray
    truth: IntArray
    prior: FloatArray
    confusion: FloatArray

    @property
    def log(self) -> dict[str, IntArray]:
        """Return the log as a table."""
        return {"task": self.task, "worker": self.worker, "label": self.label}

    def measure(self, prior: FloatArray, confusion: FloatArray) -> float:
        """Compute the mean squared error of an estimate, for the best matching order of classes.

        Parameters
        ----------
        prior, confusion
            Estimates of the crowd's parameters: (n_classes,), and (n_workers, n_classes, n_classes).

        References
        ----------
        Ibrahim, Fu (2021), ICML, supplement, equation (19).
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
    """Draw a crowd as in the published synthetic experiment.

    Parameters
    ----------
    n_tasks, n_workers, n_classes
        Sizes.
    rng
        Random generator.
    version
        "code": one worker near the identity; the columns of the others are uniform numbers scaled to sum to 1, and all
        classes are equally probable. "text": columns and prior are Dirichlet(1, ..., 1), no class is rarer than
        ``LEAST_PRIOR``, and one worker is within 0.1 of the identity.
    observed
        Probability that a worker labels a task.

    Raises
    ------
    PmfError
        If the version is unknown.

    References
    ----------
    Ibrahim, Fu (2021), ICML, supplement C.1.1; the released code differs from the text.
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
        raise PmfError(f"version is {version!r}; pass 'code' or 'text'")
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
