"""Spectral-D&S: confusion matrices from the third moments of three groups of workers, and EM from there."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from benchmarks.crowd.baselines.common import FLOOR, Found, Log, polish

STARTS = 30
STEPS = 50
ROUNDS = 10
"""Rounds of EM that follow, as published."""
LEAST = 1e-10


def run_spectral(log: Log, rng: np.random.Generator) -> Found:
    """Spectral-D&S: workers of three groups in turn, tensor power method, confusion matrices by regression, EM.

    References
    ----------
    Zhang, Chen, Zhou, Jordan (2014), NeurIPS, algorithms 1 and 2.
    """
    n_classes = log.n_classes
    group = np.arange(log.n_workers) % 3
    gather = np.zeros((3, log.n_workers * n_classes, n_classes))
    for g in range(3):
        gather[g] = (group == g).repeat(n_classes)[:, None] * np.tile(
            np.eye(n_classes), (log.n_workers, 1)
        )
    views = [np.asarray(log.one_hot @ one) for one in gather]
    solved = [solve_group(views[(g + 1) % 3], views[(g + 2) % 3], views[g], rng) for g in range(3)]
    confusion = np.empty((log.n_workers, n_classes, n_classes))
    for g in range(3):
        others = [other for other in range(3) if other != g]
        seen = views[others[0]] + views[others[1]]
        means = solved[others[0]][0] + solved[others[1]][0]
        weights = (solved[others[0]][1] + solved[others[1]][1]) / 2
        cross = (log.one_hot.T @ seen / log.n_tasks).reshape(-1, n_classes, n_classes)
        confusion[group == g] = cross[group == g] @ np.linalg.pinv((means * weights).T)
    confusion = np.maximum(confusion, FLOOR)
    return polish(log, confusion / confusion.sum(axis=1, keepdims=True), ROUNDS)


def solve_group(
    first: np.ndarray, second: np.ndarray, third: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Mean of each class, (n_classes, n_classes), and class weights, of the third of three views (n, n_classes)."""
    n, n_classes = third.shape
    rotated_first = first @ (third.T @ second @ np.linalg.pinv(first.T @ second)).T
    rotated_second = second @ (third.T @ first @ np.linalg.pinv(second.T @ first)).T
    left, values, _ = np.linalg.svd(rotated_first.T @ rotated_second / n)
    whiten = left / np.sqrt(np.maximum(values, LEAST))
    views = (rotated_first @ whiten, rotated_second @ whiten, third @ whiten)
    tensor = np.einsum("na,nb,nc->abc", *views, optimize=True) / n
    back = np.linalg.pinv(whiten.T)
    means, weights = np.empty((n_classes, n_classes)), np.empty(n_classes)
    for k in range(n_classes):
        vector, value = find_eigenvector(tensor, rng)
        tensor = tensor - value * np.einsum("a,b,c->abc", vector, vector, vector)
        means[:, k], weights[k] = value * back @ vector, value**-2
    # a column is the class that its workers most often name; the paper lets two columns claim one class
    shares = means / np.maximum(np.abs(means).sum(axis=0), LEAST)
    _, columns = linear_sum_assignment(-shares)
    return means[:, columns], weights[columns]


def find_eigenvector(tensor: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Robust eigenvector of a tensor, and its eigenvalue, by power iterations of many starts at once."""
    vectors = rng.normal(size=(len(tensor), STARTS))
    for _ in range(STEPS):
        vectors /= np.maximum(np.linalg.norm(vectors, axis=0), LEAST)
        vectors = np.einsum("abc,bs,cs->as", tensor, vectors, vectors)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=0), LEAST)
    values = np.einsum("abc,as,bs,cs->s", tensor, vectors, vectors, vectors)
    best = int(values.argmax())
    return vectors[:, best], max(float(values[best]), LEAST**0.5)
