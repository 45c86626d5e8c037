"""A crowd model from the co-occurrences of workers' labels: no pass over the tasks but those that judge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.em.samples import Judge
from pmflib.methods import CROWD_METHODS
from pmflib.solvers.crowd.annotator_model import CrowdModel
from pmflib.solvers.crowd.class_matching import Order, read_confusion
from pmflib.solvers.crowd.rotation_draws import draw_roots, measure_noise
from pmflib.solvers.crowd.worker_marginals import WorkerPairs
from pmflib.solvers.numeric.rotation import PUBLISHED, draw_rotations, rotate_nonnegative


@dataclass(frozen=True, eq=False)
class CoOccurrences:
    """What a method of co-occurrences works on.

    Parameters
    ----------
    pairs
        Pairwise marginals, at least one.
    n_labels
        int64 of shape (n_workers,): number of labels that each worker gave.
    judge
        Log-likelihood of all labels under a crowd model, nats.
    rng
        Source of starts and draws.
    order
        How columns are matched with classes: see `read_confusion`.
    """

    pairs: WorkerPairs
    n_labels: IntArray
    judge: Judge[CrowdModel]
    rng: np.random.Generator
    order: Order = "joint"

    def read(self, root: FloatArray) -> CrowdModel:
        """Crowd model of a nonnegative square root, (n_workers * n_classes, n_classes), of the matrix of all pairs."""
        confusion, prior = read_confusion(root, self.n_labels, order=self.order)
        return CrowdModel.from_probabilities(prior, confusion)


@dataclass(frozen=True)
class RotationSearch:
    """Parameters of the search for the rotation that makes a square root nonnegative.

    Parameters
    ----------
    n_starts
        Orthogonal starts.
    max_steps
        Limit of the steps from each: the alternation as published needs hundreds.
    same_confusion
        Largest difference of two end points' confusion matrices at which they count as one, and are judged once.
    n_draws
        Rotations near the best end point that are drawn, judged and averaged: a pass over the tasks each.
    margin
        Nats by which an end point must be likelier than the average of the draws to be preferred.
    """

    n_starts: int = 10
    max_steps: int = 500
    same_confusion: float = 1e-3
    n_draws: int = 40
    margin: float = 1.0


SEARCH = RotationSearch()


def fit_worker_pairs(
    pairs: WorkerPairs,
    n_labels: IntArray,
    method: str,
    *,
    judge: Judge[CrowdModel],
    rng: np.random.Generator,
    order: Order = "joint",
) -> CrowdModel:
    """Estimate confusion matrices and the class prior from pairs of workers.

    Parameters
    ----------
    pairs
        Pairwise marginals, as from `WorkerPairCounts.normalise`.
    n_labels
        int64 of shape (n_workers,): number of labels that each worker gave.
    method
        A name of the family "pairs" of `pmflib.methods.CROWD_METHODS`.
    judge
        Log-likelihood of all labels under a crowd model. It chooses among the end points of a symmetric factorisation:
        their distance from a nonnegative matrix does not, for the least of it may belong to workers that nobody's
        labels look like.
    rng
        Source of starts and draws.
    order
        How columns are matched with classes: see `read_confusion`.

    Returns
    -------
    The crowd model; without any pair nothing is known, and it is uniform.

    Raises
    ------
    MemoryPlanError
        If the method needs all pairs in one matrix, and there are too many.
    """
    if not pairs.first.size:
        n_classes = pairs.n_classes
        even = np.full((pairs.n_workers, n_classes, n_classes), 1.0 / n_classes)
        return CrowdModel.from_probabilities(np.ones(n_classes), even)
    fit = CROWD_METHODS[method].load()
    model: CrowdModel = fit(CoOccurrences(pairs, n_labels, judge, rng, order))
    return model


def average_rotations(data: CoOccurrences, root: FloatArray) -> CrowdModel:
    """Estimate a crowd model from a square root of the matrix of all pairs, by the rotations that fit it.

    Parameters
    ----------
    data
        Pairs and the judge.
    root
        float64 of shape (n_workers * n_classes, n_classes).

    Notes
    -----
    Pairs leave a symmetric factorisation some freedom: all rotations of it that stay nonnegative, but for the noise,
    fit them as well, and an end point is only the corner where a search has stopped. The least expected error is that
    of the mean over the posterior. Rotations near the best end point are drawn from the posterior given the pairs, and
    averaged with the likelihood of all labels as weights; where the labels distinguish rotations, the likeliest remain.
    """
    ends: list[tuple[float, FloatArray, CrowdModel]] = []
    for rotation in draw_rotations(data.pairs.n_classes, SEARCH.n_starts, data.rng):
        nonnegative, _ = rotate_nonnegative(
            root, rotations=[rotation], settings=PUBLISHED, max_iter=SEARCH.max_steps
        )
        model = data.read(nonnegative)
        gaps = (np.abs(model.mass - other.mass).max() for *_, other in ends)
        if all(gap > SEARCH.same_confusion for gap in gaps):
            ends.append((data.judge(model), nonnegative, model))
    log_likelihood, corner, best = max(ends, key=lambda end: end[0])
    drawn = draw_roots(root, measure_noise(root, data.pairs), corner, SEARCH.n_draws, data.rng)
    log_likelihoods = np.array([data.judge(data.read(each)) for each in drawn])
    weights = np.exp(log_likelihoods - log_likelihoods.max())
    average = data.read(np.tensordot(weights / weights.sum(), drawn, 1))
    return best if log_likelihood > data.judge(average) + SEARCH.margin else average
