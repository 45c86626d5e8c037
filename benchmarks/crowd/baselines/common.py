"""What the published baselines share: a log as one-hot rows, and labels from confusion matrices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse

from pmflib.apps.crowd import LabelLog

FLOOR = 1e-6
"""Least probability of a label, as the spectral method of Zhang and others has it."""


@dataclass(frozen=True, eq=False)
class Log:
    """A label log.

    Parameters
    ----------
    one_hot
        CSR matrix of shape (n_tasks, n_workers * n_classes): 1 where a worker gave a task a label.
    n_workers, n_classes
        Sizes.
    """

    one_hot: scipy.sparse.csr_matrix
    n_workers: int
    n_classes: int

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return int(self.one_hot.shape[0])

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Task, worker and class of every label, int64 of shape (n_labels,)."""
        tasks = np.repeat(np.arange(self.n_tasks), np.diff(self.one_hot.indptr))
        return tasks, *np.divmod(self.one_hot.indices.astype(np.int64), self.n_classes)

    @property
    def votes(self) -> np.ndarray:
        """Number of labels by task and label, (n_tasks, n_classes)."""
        labels = np.tile(np.eye(self.n_classes), (self.n_workers, 1))
        return np.asarray(self.one_hot @ labels)


@dataclass(frozen=True, eq=False)
class Found:
    """What a method says: (n_tasks, n_classes); where it has them, (n_classes,) and (n_workers, labels, classes)."""

    posterior: np.ndarray
    prior: np.ndarray | None = None
    confusion: np.ndarray | None = None


def make_log(log: LabelLog) -> Log:
    """One-hot rows of labels."""
    block, width = log.block, log.n_workers * log.n_classes
    cells = (np.ones(len(block.indices)), block.indices, block.indptr)
    one_hot = scipy.sparse.csr_matrix(cells, shape=(log.n_tasks, width))
    return Log(one_hot, log.n_workers, log.n_classes)


def find_posterior(log: Log, prior: np.ndarray, confusion: np.ndarray) -> np.ndarray:
    """Posterior of every task, (n_tasks, n_classes)."""
    weights = np.log(np.maximum(confusion, FLOOR)).reshape(-1, log.n_classes)
    scores = log.one_hot @ weights + np.log(np.maximum(prior, FLOOR))
    posterior = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(posterior / posterior.sum(axis=1, keepdims=True))


def count_confusion(log: Log, posterior: np.ndarray) -> np.ndarray:
    """Confusion matrices by maximum likelihood; uniform where a worker has no labels of a class."""
    mass = (log.one_hot.T @ posterior).reshape(-1, log.n_classes, log.n_classes)
    totals = mass.sum(axis=1, keepdims=True)
    return np.where(totals > 0, mass / np.where(totals > 0, totals, 1.0), 1.0 / log.n_classes)


def polish(log: Log, confusion: np.ndarray, n_rounds: int) -> Found:
    """Rounds of EM with equally probable classes, as the published comparisons have them after a spectral start."""
    prior = np.full(log.n_classes, 1.0 / log.n_classes)
    posterior = find_posterior(log, prior, confusion)
    for _ in range(n_rounds):
        confusion = count_confusion(log, posterior)
        posterior = find_posterior(log, prior, confusion)
    return Found(posterior, prior, confusion)
