"""A crowd model from the co-occurrences of workers' labels, by any method of pairs: no pass over the tasks.

References
----------
Ibrahim, Fu, Kargas, Huang (2019), NeurIPS, for extreme columns and the coupled factorisation; Ibrahim, Fu (2021), ICML,
for the symmetric factorisations: equations (7) and (8) designated, (9) and (11) robust, (12) and (13) the rotation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pmflib.apps.crowd.methods import CROWD_METHODS
from pmflib.apps.crowd.pairs.annotator_model import CrowdModel
from pmflib.apps.crowd.pairs.class_matching import Order, fit_multispa, raise_floor, read_confusion
from pmflib.apps.crowd.pairs.rotation_draws import draw_roots, measure_noise
from pmflib.apps.crowd.pairs.worker_marginals import (
    WorkerPairs,
    factor_pairs,
    impute_by_one_pair,
    impute_designated,
)
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.constraints import OneOf, check
from pmflib.base.errors import PmfError
from pmflib.base.method_options import MethodChoice, configure_method, method_option
from pmflib.model.sufficient_statistics import Assessor
from pmflib.papers.opt import fit_composite
from pmflib.papers.rotation import (
    PLAIN,
    draw_rotations,
    root_of,
    rotate_nonnegative,
    rotate_shifted,
)


@dataclass(frozen=True)
class WorkerPairOptions:
    """Options of all methods of co-occurrences."""

    min_support: int = method_option(
        1, "common tasks that a pair of workers needs to count as observed", least=1
    )


@dataclass(frozen=True)
class RotationOptions(WorkerPairOptions):
    """Options of the symmetric factorisations; rotation "shifted" with order "each" is the published algorithm."""

    rotation: Literal["averaged", "shifted", "plain"] = method_option(
        "averaged",
        "how the root is made nonnegative: the mean of all rotations that fit, weighted by the labels; the published "
        "shifted ReLU from one start; or its predecessor without a shift",
    )
    shift: float = method_option(1e-6, "threshold of the first step of the shifted ReLU", least=0)
    shift_decay: float = method_option(
        1.0,
        "factor of the threshold in each step; shift and decay psi are psi^(t+1)",
        least=0,
        most=1,
    )
    order: Literal["joint", "each"] = method_option(
        "joint",
        "how columns are matched with classes: alike for all workers, or for each worker, as published for real logs",
    )


@dataclass(frozen=True)
class FactorOptions(RotationOptions):
    """Options of the factorisations of observed pairs."""

    tol: float = method_option(
        1e-6, "relative change of the mean residual at which to stop, as published", least=0
    )
    max_iter: int = method_option(300, "limit of the sweeps", least=0)


@dataclass(frozen=True)
class DesignatedOptions(RotationOptions):
    """Options of the designated factorisation."""

    annotators: tuple[object, ...] | None = method_option(
        None,
        "two workers who label together with all others: missing pairs are imputed through these alone; by default "
        "through all workers",
    )


@dataclass(frozen=True)
class CoupledOptions(WorkerPairOptions):
    """Options of the coupled factorisation."""

    weights: Literal["support", "equal"] = method_option(
        "support", "weights of the pairs: their common tasks, or equal, as published"
    )
    tol: float = method_option(
        1e-6, "relative decrease of the loss at which to stop, as published", least=0
    )
    max_iter: int = method_option(200, "limit of the iterations", least=0)


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
    workers
        Names of the workers, by which options know them.
    """

    pairs: WorkerPairs
    n_labels: IntArray
    score: Assessor[CrowdModel]
    rng: np.random.Generator
    workers: Sequence[object]

    def read(self, root: FloatArray, order: Order) -> CrowdModel:
        """Crowd model of a nonnegative square root, (n_workers * n_classes, n_classes), of the matrix of all pairs."""
        confusion, prior = read_confusion(root, self.n_labels, order=order)
        return CrowdModel.from_probabilities(prior, confusion)

    def find_annotators(self, names: Sequence[object]) -> tuple[int, int]:
        """Return the indices of two named workers.

        Raises
        ------
        PmfError
            If they are not two workers of the log.
        """
        if len(names) != 2 or names[0] == names[1]:
            raise PmfError(f"designated.annotators is {names!r}; pass two workers")
        known = {name: index for index, name in enumerate(self.workers)}
        for name in names:
            check(OneOf(known), **{"designated.annotators": name})
        return known[names[0]], known[names[1]]


@dataclass(frozen=True)
class RotationSearch:
    """Parameters of the search for the rotation that makes a square root nonnegative.

    Parameters
    ----------
    n_starts
        Orthogonal starts.
    max_steps
        Limit of the steps from each: the plain alternation needs hundreds.
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
    method: MethodChoice,
    *,
    score: Assessor[CrowdModel],
    rng: np.random.Generator,
    workers: Sequence[object] | None = None,
) -> CrowdModel:
    """Estimate confusion matrices and the class prior from pairs of workers.

    Parameters
    ----------
    pairs
        Pairwise marginals, as from `WorkerPairCounts.normalise`.
    n_labels
        int64 of shape (n_workers,): number of labels that each worker gave.
    method
        A name of the family "pairs" of `pmflib.apps.crowd.methods.CROWD_METHODS`, or a mapping of it and its options.
    score
        Log-likelihood of all labels under a crowd model. It chooses among the end points of a symmetric factorisation:
        their distance from a nonnegative matrix does not, for the least of it may belong to workers that nobody's
        labels look like.
    rng
        Source of starts and draws.
    workers
        Names of the workers, by which options know them; by default they are numbered.

    Returns
    -------
    The crowd model; without any pair nothing is known, and it is uniform.

    Raises
    ------
    PmfError
        If an option is unknown or out of range.
    MemoryPlanError
        If the method needs all pairs in one matrix, and there are too many.
    """
    chosen, options = configure_method(CROWD_METHODS, method)
    if options is not None:
        pairs = pairs.take(pairs.support >= options.min_support)
    if not pairs.first.size:
        n_classes = pairs.n_classes
        even = np.full((pairs.n_workers, n_classes, n_classes), 1.0 / n_classes)
        return CrowdModel.from_probabilities(np.ones(n_classes), even)
    names = range(pairs.n_workers) if workers is None else workers
    arguments = () if options is None else (options,)
    model: CrowdModel = chosen.load()(CoOccurrences(pairs, n_labels, score, rng, names), *arguments)
    return model


def rotate_root(data: CoOccurrences, root: FloatArray, options: RotationOptions) -> CrowdModel:
    """Estimate a crowd model from a square root of the matrix of all pairs, as the options say."""
    if options.rotation == "averaged":
        return average_rotations(data, root, options.order)
    if options.rotation == "shifted":
        shifts = {"shift": options.shift, "shift_decay": options.shift_decay}
        nonnegative, _ = rotate_shifted(root, **shifts, max_iter=SEARCH.max_steps)
    else:
        nonnegative, _ = rotate_nonnegative(root, settings=PLAIN, max_iter=SEARCH.max_steps)
    return data.read(nonnegative, options.order)


def average_rotations(data: CoOccurrences, root: FloatArray, order: Order) -> CrowdModel:
    """Estimate a crowd model from a square root of the matrix of all pairs, by the rotations that fit it.

    Parameters
    ----------
    data
        Pairs, and how crowd models are scored.
    root
        float64 of shape (n_workers * n_classes, n_classes).
    order
        How columns are matched with classes: see `read_confusion`.

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
            root, rotations=[rotation], settings=PLAIN, max_iter=SEARCH.max_steps
        )
        model = data.read(nonnegative, order)
        gaps = (np.abs(model.mass - other.mass).max() for *_, other in ends)
        if all(gap > SEARCH.same_confusion for gap in gaps):
            ends.append((data.score(model), nonnegative, model))
    log_likelihood, corner, best = max(ends, key=lambda end: end[0])
    drawn = draw_roots(root, measure_noise(root, data.pairs), corner, SEARCH.n_draws, data.rng)
    log_likelihoods = np.array([data.score(data.read(each, order)) for each in drawn])
    weights = np.exp(log_likelihoods - log_likelihoods.max())
    average = data.read(np.tensordot(weights / weights.sum(), drawn, 1), order)
    return best if log_likelihood > data.score(average) + SEARCH.margin else average


UNKNOWN_ACCURACY_ABOVE_CHANCE = 0.5
"""Weight of the identity, in [0, 1], in the first confusion matrix of a worker of whom nothing is known: uniform
matrices would stay where they are."""


def fit_robust(data: CoOccurrences, options: FactorOptions) -> CrowdModel:
    """Symmetric factorisation of the observed pairs, robust to bad ones."""
    return _factor(data, options, reweighted=True)


def fit_equal_weights(data: CoOccurrences, options: FactorOptions) -> CrowdModel:
    """Symmetric factorisation of the observed pairs by least squares."""
    return _factor(data, options, reweighted=False)


def _factor(data: CoOccurrences, options: FactorOptions, *, reweighted: bool) -> CrowdModel:
    root, _ = factor_pairs(
        data.pairs,
        rng=data.rng,
        reweighted=reweighted,
        max_iter=options.max_iter,
        tol=options.tol,
    )
    return rotate_root(data, root, options)


def fit_designated(data: CoOccurrences, options: DesignatedOptions) -> CrowdModel:
    """Symmetric factorisation, missing pairs filled through all designated workers, or through two named ones."""
    n_classes = data.pairs.n_classes
    marginals, support, observed = data.pairs.to_dense()
    if options.annotators is None:
        filled, _ = impute_designated(marginals, support, observed, n_classes=n_classes)
    else:
        named = data.find_annotators(options.annotators)
        filled, _ = impute_by_one_pair(
            marginals, observed, n_classes=n_classes, rng=data.rng, annotators=named
        )
    return rotate_root(data, root_of(filled, n_classes), options)


def fit_one_pair(data: CoOccurrences, options: RotationOptions) -> CrowdModel:
    """Symmetric factorisation, missing pairs filled through one pair of designated workers."""
    n_classes = data.pairs.n_classes
    marginals, _, observed = data.pairs.to_dense()
    filled, _ = impute_by_one_pair(marginals, observed, n_classes=n_classes, rng=data.rng)
    return rotate_root(data, root_of(filled, n_classes), options)


def fit_zero_filled(data: CoOccurrences, options: RotationOptions) -> CrowdModel:
    """Symmetric factorisation, missing pairs left zero."""
    return rotate_root(data, root_of(data.pairs.to_sparse(), data.pairs.n_classes), options)


def fit_extreme_columns(data: CoOccurrences, options: WorkerPairOptions) -> CrowdModel:
    """Extreme columns of each worker's own pairs; all classes equally probable."""
    prior = np.ones(data.pairs.n_classes)
    return CrowdModel.from_probabilities(prior, fit_multispa(data.pairs))


def fit_coupled(data: CoOccurrences, options: CoupledOptions) -> CrowdModel:
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
        weights=support if options.weights == "support" else None,
        max_iter=options.max_iter,
        tol=options.tol,
    )
    confusion = raise_floor(result.factors.reshape(-1, n_classes, n_classes))
    return CrowdModel.from_probabilities(result.prior, confusion)
