"""Exact pairs of workers, some of them hidden: what the factorisation alone can do, and what any could."""

from __future__ import annotations

import numpy as np
from scipy.linalg import expm

from benchmarks.crowd.planted_crowds import Version, draw_published_crowd
from pmflib.apps.crowd.co_occurrence import fit_worker_pairs
from pmflib.apps.crowd.pairs.annotator_model import CrowdModel
from pmflib.apps.crowd.pairs.worker_marginals import WorkerPairs

STEPS, BURN_IN = 6000, 1000
"""Steps among exact factorisations, and how many of them only find their size."""


def measure_noiseless(
    method: str, hidden: float, version: Version, rng: np.random.Generator
) -> float:
    """Mean squared error of a method, by equation (19) of the paper.

    Parameters
    ----------
    method
        As for `fit_worker_pairs`.
    hidden
        Share of the pairs that are hidden.
    version
        As for `draw_published_crowd`.
    rng
        Draws the crowd, and what is hidden.
    """
    crowd = draw_published_crowd(1, rng, version=version)
    n, n_classes = crowd.confusion.shape[:2]
    first, second = np.triu_indices(n, 1)
    seen = rng.random(first.size) >= hidden
    first, second = first[seen], second[seen]
    blocks = (crowd.confusion[first] * crowd.prior) @ crowd.confusion[second].transpose(0, 2, 1)
    pairs = WorkerPairs(first, second, blocks, np.full(first.size, 1), n)

    def score(found: CrowdModel) -> float:
        scaled = found.confusion * found.prior
        model = scaled[first] @ found.confusion[second].transpose(0, 2, 1)
        return float((blocks * np.log(model)).sum())

    found = fit_worker_pairs(pairs, np.full(n, 1), method, score=score, rng=rng)
    assert found.prior.size == n_classes
    return crowd.measure(found.prior, found.confusion)


def measure_freedom(version: Version, rng: np.random.Generator) -> tuple[float, float]:
    """Mean squared errors of a random exact factorisation of all pairs, and of the mean of them all.

    Exact pairs leave the rotations of the nonnegative root open that keep it nonnegative: nothing in the pairs
    distinguishes them. They are walked at random from the truth on. Were all as probable, their mean would have the
    least expected error.
    """
    crowd = draw_published_crowd(1, rng, version=version)
    n, n_classes = crowd.confusion.shape[:2]
    root = (crowd.confusion * np.sqrt(crowd.prior)).reshape(-1, n_classes)
    rotation, total = np.eye(n_classes), np.zeros((n_classes, n_classes))
    size, taken, errors = 0.05, 0, []

    def measure(found: np.ndarray) -> float:
        blocks = np.maximum(root @ found, 0.0).reshape(n, n_classes, n_classes)
        sums = blocks.sum(axis=1)
        prior = (sums**2).mean(axis=0)
        return crowd.measure(prior / prior.sum(), blocks / sums[:, None, :])

    for step in range(STEPS):
        noise = rng.normal(0, size, (n_classes, n_classes))
        tried = rotation @ expm(noise - noise.T)
        if (root @ tried).min() >= 0:
            rotation, taken = tried, taken + 1
        if step < BURN_IN and step % 50 == 49:
            size, taken = size * (1.5 if taken > 20 else 0.67), 0
        elif step >= BURN_IN:
            total += rotation
            if step % 25 == 0:
                errors.append(measure(rotation))
    left, _, right = np.linalg.svd(total)
    return float(np.mean(errors)), measure(left @ right)
