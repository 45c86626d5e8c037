"""MinimaxEntropy: confusion by worker and by task, of which the least can be said, given the labels of each."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from benchmarks.crowd.baselines.common import Found, Log

REGULARISATION = 0.25
"""Weight of the workers' parameters, over the squared number of classes: the tables' choice."""
ROUNDS = 50
STEPS = 25
TOLERANCE = 5e-3


def run_minimax(log: Log, rng: np.random.Generator) -> Found:
    """MinimaxEntropy for classes without order: a logistic model of worker and task, and posteriors, in turn.

    References
    ----------
    Zhou, Liu, Platt, Meek (2014), ICML: Aggregating ordinal labels from crowds by minimax conditional entropy.
    """
    tasks, workers, labels = log.columns
    n_classes = log.n_classes
    for_workers = REGULARISATION * n_classes**2
    for_tasks = for_workers * (tasks.size / log.n_workers) / (tasks.size / log.n_tasks)
    shapes = (log.n_workers, n_classes, n_classes), (log.n_tasks, n_classes, n_classes)
    n_of_workers = int(np.prod(shapes[0]))
    votes = log.votes
    posterior = votes / np.maximum(votes.sum(axis=1, keepdims=True), 1)
    given = np.eye(n_classes)[labels][:, None, :]

    def find_logs(parameters: np.ndarray) -> np.ndarray:
        """Logarithms of the probabilities of labels, (n_labels, true class, label)."""
        of_workers = parameters[:n_of_workers].reshape(shapes[0])
        scores = of_workers[workers] + parameters[n_of_workers:].reshape(shapes[1])[tasks]
        scores -= scores.max(axis=2, keepdims=True)
        return np.asarray(scores - np.log(np.exp(scores).sum(axis=2, keepdims=True)))

    def evaluate(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        logs = find_logs(parameters)
        weights = posterior[tasks][:, :, None]
        slopes = (weights * (np.exp(logs) - given)).reshape(tasks.size, -1)
        gradient = np.concatenate(
            [sum_by(workers, slopes, log.n_workers), sum_by(tasks, slopes, log.n_tasks)]
        )
        gradient[:n_of_workers] += for_workers * parameters[:n_of_workers]
        gradient[n_of_workers:] += for_tasks * parameters[n_of_workers:]
        value = -float((weights * logs * given).sum())
        value += for_workers / 2 * float(parameters[:n_of_workers] @ parameters[:n_of_workers])
        return value + for_tasks / 2 * float(
            parameters[n_of_workers:] @ parameters[n_of_workers:]
        ), gradient

    def sum_by(owner: np.ndarray, slopes: np.ndarray, n_owners: int) -> np.ndarray:
        width = n_classes**2
        cells = (owner[:, None] * width + np.arange(width)).ravel()
        return np.bincount(cells, slopes.ravel(), minlength=n_owners * width)

    parameters = np.zeros(n_of_workers + int(np.prod(shapes[1])))
    for _ in range(ROUNDS):
        found = minimize(
            evaluate, parameters, jac=True, method="L-BFGS-B", options={"maxiter": STEPS}
        )
        parameters = found.x
        logs = (find_logs(parameters) * given).sum(axis=2)
        scores = np.zeros((log.n_tasks, n_classes))
        np.add.at(scores, tasks, logs)
        updated = np.exp(scores - scores.max(axis=1, keepdims=True))
        updated /= updated.sum(axis=1, keepdims=True)
        moved = np.abs(updated - posterior).max()
        posterior = updated
        if moved < TOLERANCE:
            break
    return Found(posterior)
