"""Methods for two classes by singular vectors: KOS, GhoshSVD, EigenRatio.

More classes are taken in order, as the published tables do: label above the first, above the second, ...; the class is
the first that is not exceeded. That says little where classes have no order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse

from benchmarks.crowd.baselines.common import Found, Log

TINY = 1e-8


def run_kos(log: Log, rng: np.random.Generator) -> Found:
    """KOS in its limit: left singular vector of the labels about every worker's mean.

    The messages of the paper are powers of this matrix; the sign is the one that most workers, by weight, agree with.

    References
    ----------
    Karger, Oh, Shah (2011), NeurIPS; as Zhang, Chen, Zhou, Jordan (2014), NeurIPS, compare it.
    """

    def score(labels: np.ndarray) -> np.ndarray:
        left, _, right = np.linalg.svd(labels - labels.mean(axis=0), full_matrices=False)
        agreeing = (right[0][right[0] >= 0] ** 2).sum()
        return left[:, 0] if agreeing >= 0.5 else -left[:, 0]

    return _split(log, score)


def run_ghosh_svd(log: Log, rng: np.random.Generator) -> Found:
    """GhoshSVD: left singular vector of the labels, its sign that of the votes.

    References
    ----------
    Ghosh, Kale, McAfee (2011), ACM EC.
    """

    def score(labels: np.ndarray) -> np.ndarray:
        left, _, _ = np.linalg.svd(labels, full_matrices=False)
        return _agree(np.sign(left[:, 0]), labels)

    return _split(log, score)


def run_eigen_ratio(log: Log, rng: np.random.Generator) -> Found:
    """EigenRatio: workers weigh by the eigenvector of how often pairs agree, over that of which pairs meet.

    References
    ----------
    Dalvi, Dasgupta, Kumar, Rastogi (2013), WWW, algorithm 2.
    """

    def score(labels: np.ndarray) -> np.ndarray:
        met = np.abs(labels).T @ np.abs(labels)
        agreement = labels.T @ labels / (met + TINY)
        weights, reach = _lead(agreement), _lead((met > 0).astype(float))
        return _agree(labels @ (weights / reach), labels)

    return _split(log, score)


def _lead(matrix: np.ndarray) -> np.ndarray:
    """Singular vector of the largest singular value of a symmetric matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return vectors[:, np.abs(values).argmax()]


def _agree(score: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return score if score @ labels.sum(axis=1) >= 0 else -score


def _split(log: Log, score: Callable[[np.ndarray], np.ndarray]) -> Found:
    """Labels by one split into two classes after the other."""
    tasks, workers, labels = log.columns
    shape = (log.n_tasks, log.n_workers)
    first = np.full(log.n_tasks, log.n_classes - 1)
    for label in range(log.n_classes - 2, -1, -1):
        signs = np.where(labels > label, 1.0, -1.0)
        signed = scipy.sparse.coo_matrix((signs, (tasks, workers)), shape=shape).toarray()
        first[score(signed) < 0] = label
    return Found(np.eye(log.n_classes)[first])
