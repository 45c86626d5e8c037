"""TensorADMM: confusion matrices by least squares on the first three moments of the workers' labels."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy.sparse
from scipy.optimize import linear_sum_assignment

from benchmarks.crowd.baselines.common import Found, Log, find_posterior
from pmflib.papers.least_squares import project_simplex, solve_simplex_least_squares

SWEEPS = 500
INNER = 10
TOLERANCE = 1e-4
"""Relative change of all confusion matrices in a sweep."""


@dataclass(frozen=True, eq=False)
class Moments:
    """First, second and third moments of a log, of those who met.

    Parameters
    ----------
    single
        (n_workers, n_classes).
    pairs, met
        (n_workers, n_workers, n_classes, n_classes), and which pairs met.
    triples
        Workers of each triple that met, (n_triples, 3).
    levels, values
        Three workers' labels as levels, (n_cells, 3), and how often they met like this, over how often they met.
    """

    single: np.ndarray
    pairs: np.ndarray
    met: np.ndarray
    triples: np.ndarray
    levels: np.ndarray
    values: np.ndarray


def run_tensor(log: Log, rng: np.random.Generator) -> Found:
    """TensorADMM from a random start; classes are ordered so that most labels are right.

    Pairs and triples of workers who never met are left out, where the published code takes them for zeros.

    References
    ----------
    Traganitis, Pages-Zamora, Giannakis (2018), IEEE Transactions on Signal Processing 66.
    """
    moments = count_moments(log)
    n_workers, n_classes = moments.single.shape
    confusion = rng.random((n_workers, n_classes, n_classes))
    confusion /= confusion.sum(axis=1, keepdims=True)
    prior = np.full(n_classes, 1.0 / n_classes)
    found = [_find_cells(moments, worker) for worker in range(n_workers)]
    duals = np.zeros_like(confusion)
    for _ in range(SWEEPS):
        before = confusion.copy()
        for worker in range(n_workers):
            gram, right = _meet_worker(moments, found[worker], worker, confusion, prior)
            confusion[worker], duals[worker] = _solve(gram, right, confusion[worker], duals[worker])
        prior = solve_simplex_least_squares(*_meet_prior(moments, confusion))
        if np.abs(confusion - before).sum() < TOLERANCE * np.abs(before).sum():
            break
    support = np.bincount(log.columns[1], minlength=n_workers)
    diagonals = np.einsum("w,wlk->lk", support.astype(float), confusion * prior)
    _, columns = linear_sum_assignment(-diagonals)
    prior, confusion = prior[columns], confusion[:, :, columns]
    return Found(find_posterior(log, prior, confusion), prior, confusion)


def count_moments(log: Log) -> Moments:
    """Moments of a log, each over the tasks that all of its workers labelled."""
    n_workers, n_classes = log.n_workers, log.n_classes
    counts = (log.one_hot.T @ log.one_hot).toarray()
    counts = counts.reshape(n_workers, n_classes, n_workers, n_classes).transpose(0, 2, 1, 3)
    totals = counts.sum(axis=(2, 3))
    pairs = counts / np.maximum(totals, 1)[:, :, None, None]
    single = np.einsum("wwll->wl", counts)
    single = single / np.maximum(single.sum(axis=1, keepdims=True), 1)
    np.fill_diagonal(totals, 0)
    keys = _list_triples(log)
    levels, times = np.unique(keys, axis=0, return_counts=True)
    triples, owner = np.unique(levels // n_classes, axis=0, return_inverse=True)
    owner = owner.reshape(-1)
    values = times / np.bincount(owner, times, minlength=len(triples))[owner]
    return Moments(single, pairs, totals > 0, triples, levels, values)


def _list_triples(log: Log) -> np.ndarray:
    """Levels of every three labels to a task, in order of workers, (n, 3)."""
    sizes = np.diff(log.one_hot.indptr)
    found = [np.empty((0, 3), np.int64)]
    for size in np.unique(sizes[sizes >= 3]):
        starts = log.one_hot.indptr[:-1][sizes == size]
        labels = np.sort(log.one_hot.indices[starts[:, None] + np.arange(size)], axis=1)
        chosen = np.array(list(combinations(range(size), 3)))
        found.append(labels[:, chosen].reshape(-1, 3).astype(np.int64))
    return np.concatenate(found)


def _find_cells(
    moments: Moments, worker: int
) -> tuple[np.ndarray, np.ndarray, scipy.sparse.csr_matrix]:
    """The other two of each triple with a worker, levels of theirs in each cell, and values by own label and cell."""
    n_classes = moments.single.shape[1]
    partners, levels = [np.empty((0, 2), np.int64)], [np.empty((0, 2), np.int64)]
    own, values = [np.empty(0, np.int64)], [np.empty(0)]
    for position in range(3):
        others = [other for other in range(3) if other != position]
        partners.append(moments.triples[moments.triples[:, position] == worker][:, others])
        there = moments.levels[:, position] // n_classes == worker
        levels.append(moments.levels[there][:, others])
        own.append(moments.levels[there, position] % n_classes)
        values.append(moments.values[there])
    rows, data = np.concatenate(own), np.concatenate(values)
    cells = scipy.sparse.coo_matrix((data, (rows, np.arange(rows.size))), (n_classes, rows.size))
    return np.concatenate(partners), np.concatenate(levels), cells.tocsr()


def _meet_worker(
    moments: Moments,
    found: tuple[np.ndarray, np.ndarray, scipy.sparse.csr_matrix],
    worker: int,
    confusion: np.ndarray,
    prior: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Normal equations of one confusion matrix, the others being as they are."""
    partners, levels, cells = found
    grams = confusion.transpose(0, 2, 1) @ confusion
    met = moments.met[worker]
    gram = grams[met].sum(axis=0) + (grams[partners[:, 0]] * grams[partners[:, 1]]).sum(axis=0)
    right = np.einsum("jlb,jbk->lk", moments.pairs[worker][met], confusion[met])
    rows = confusion.reshape(-1, prior.size)
    right += cells @ (rows.take(levels[:, 0], axis=0) * rows.take(levels[:, 1], axis=0))
    gram = gram * np.outer(prior, prior) + np.outer(prior, prior)
    return gram, right * prior + np.outer(moments.single[worker], prior)


def _meet_prior(moments: Moments, confusion: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Normal equations of the prior."""
    grams = confusion.transpose(0, 2, 1) @ confusion
    first, second = np.nonzero(np.triu(moments.met))
    gram = grams.sum(axis=0) + (grams[first] * grams[second]).sum(axis=0)
    gram += np.prod(grams[moments.triples], axis=1).sum(axis=0)
    right = np.einsum("wl,wlk->k", moments.single, confusion)
    blocks = moments.pairs[first, second] @ confusion[second]
    right += np.einsum("plk,plk->k", confusion[first], blocks)
    rows = confusion.reshape(-1, right.size)[moments.levels]
    return gram, right + moments.values @ np.prod(rows, axis=1)


def _solve(
    gram: np.ndarray, right: np.ndarray, start: np.ndarray, dual: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Least squares with columns on the simplex, by ADMM; and its dual variables."""
    penalty = np.linalg.norm(gram) / len(gram)
    inverse = np.linalg.inv(gram + penalty * np.eye(len(gram)))
    found = start
    for _ in range(INNER):
        free = (right + penalty * (found + dual)) @ inverse
        found = project_simplex(free - dual)
        dual = dual + found - free
    return found, dual
