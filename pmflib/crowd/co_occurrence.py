"""A crowd model from the co-occurrences of workers' labels, by any method of pairs: no pass over the tasks.

References
----------
Ibrahim, Fu, Kargas, Huang (2019), NeurIPS, for extreme columns and the coupled factorisation; Ibrahim, Fu (2021), ICML,
for the symmetric factorisations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.methods import CROWD_METHODS
from pmflib.model.statistics import Assessor
from pmflib.solvers.crowd.annotator_model import CrowdModel
from pmflib.solvers.crowd.class_matching import Order, fit_multispa, raise_floor, read_confusion
from pmflib.solvers.crowd.rotation_draws import draw_roots, measure_noise
from pmflib.solvers.crowd.worker_marginals import (
    WorkerPairs,
    factor_pairs,
    impute_by_one_pair,
    impute_designated,
)
from pmflib.solvers.numeric.rotation import PUBLISHED, draw_rotations, root_of, rotate_nonnegative
from pmflib.solvers.pairs.composite import fit_composite


@dataclass(frozen=True, eq=False)
class CoOccurrences:
    """What a method of co-occurrences works on.

    Parameters
    ----------
    pairs
        Pairwise marginals, at least one.
    n_labels
        int64 of shape (n_workers,): number of labels that each worker gave.
    score
        Log-likelihood of all labels under a crowd model, nats.
    rng
        Source of starts and draws.
    order
        How columns are matched with classes: see `read_confusion`.
    """

    pairs: WorkerPairs
    n_labels: IntArray
    score: Assessor[CrowdModel]
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
        Largest difference of two end points' confusion matrices at which they count as one, and are scored once.
    n_draws
        Rotations near the best end point that are drawn, scored and averaged: a pass over the tasks each.
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
    score: Assessor[CrowdModel],
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
        A name of the family "pairs" of `pmflib.core.methods.CROWD_METHODS`.
    score
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
    model: CrowdModel = fit(CoOccurrences(pairs, n_labels, score, rng, order))
    return model


def average_rotations(data: CoOccurrences, root: FloatArray) -> CrowdModel:
    """Estimate a crowd model from a square root of the matrix of all pairs, by the rotations that fit it.

    Parameters
    ----------
    data
        Pairs, and how crowd models are scored.
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
            ends.append((data.score(model), nonnegative, model))
    log_likelihood, corner, best = max(ends, key=lambda end: end[0])
    drawn = draw_roots(root, measure_noise(root, data.pairs), corner, SEARCH.n_draws, data.rng)
    log_likelihoods = np.array([data.score(data.read(each)) for each in drawn])
    weights = np.exp(log_likelihoods - log_likelihoods.max())
    average = data.read(np.tensordot(weights / weights.sum(), drawn, 1))
    return best if log_likelihood > data.score(average) + SEARCH.margin else average


UNKNOWN_ACCURACY_ABOVE_CHANCE = 0.5
"""Weight of the identity, in [0, 1], in the first confusion matrix of a worker of whom nothing is known: uniform
matrices would stay where they are."""
MAX_COUPLED_SWEEPS = 200
"""Limit of the iterations of the coupled factorisation."""


def fit_robust(data: CoOccurrences) -> CrowdModel:
    """Symmetric factorisation of the observed pairs, robust to bad ones."""
    return average_rotations(data, factor_pairs(data.pairs, rng=data.rng)[0])


def fit_equal_weights(data: CoOccurrences) -> CrowdModel:
    """Symmetric factorisation of the observed pairs by least squares."""
    return average_rotations(data, factor_pairs(data.pairs, rng=data.rng, reweighted=False)[0])


def fit_designated(data: CoOccurrences) -> CrowdModel:
    """Symmetric factorisation, missing pairs filled through all designated workers."""
    n_classes = data.pairs.n_classes
    filled, _ = impute_designated(*data.pairs.to_dense(), n_classes=n_classes)
    return average_rotations(data, root_of(filled, n_classes))


def fit_one_pair(data: CoOccurrences) -> CrowdModel:
    """Symmetric factorisation, missing pairs filled through one pair of designated workers."""
    n_classes = data.pairs.n_classes
    marginals, _, observed = data.pairs.to_dense()
    filled, _ = impute_by_one_pair(marginals, observed, n_classes=n_classes, rng=data.rng)
    return average_rotations(data, root_of(filled, n_classes))


def fit_zero_filled(data: CoOccurrences) -> CrowdModel:
    """Symmetric factorisation, missing pairs left zero."""
    return average_rotations(data, root_of(data.pairs.to_sparse(), data.pairs.n_classes))


def fit_extreme_columns(data: CoOccurrences) -> CrowdModel:
    """Extreme columns of each worker's own pairs; all classes equally probable."""
    prior = np.ones(data.pairs.n_classes)
    return CrowdModel.from_probabilities(prior, fit_multispa(data.pairs))


def fit_coupled(data: CoOccurrences) -> CrowdModel:
    """Coupled factorisation in Kullback-Leibler divergence, from the extreme columns."""
    pairs, n_classes = data.pairs, data.pairs.n_classes
    marginals, support, observed = pairs.to_dense()
    initial = fit_multispa(pairs)
    unknown = (initial == initial[:, :1, :1]).all(axis=(1, 2))
    right = UNKNOWN_ACCURACY_ABOVE_CHANCE
    initial[unknown] = right * np.eye(n_classes) + (1 - right) / n_classes
    result = fit_composite(
        marginals,
        pairs.offsets,
        observed,
        initial=(np.full(n_classes, 1.0 / n_classes), initial.reshape(-1, n_classes)),
        weights=support,
        max_iter=MAX_COUPLED_SWEEPS,
    )
    confusion = raise_floor(result.factors.reshape(-1, n_classes, n_classes))
    return CrowdModel.from_probabilities(result.prior, confusion)
