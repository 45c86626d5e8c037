"""Methods of co-occurrences: from pairs of workers to a crowd model, one function each.

References
----------
Ibrahim, Fu, Kargas, Huang (2019), NeurIPS, for extreme columns and the coupled factorisation; Ibrahim, Fu (2021), ICML,
for the symmetric factorisations.
"""

from __future__ import annotations

import numpy as np

from pmflib.crowd.co_occurrence import CoOccurrences, average_rotations
from pmflib.solvers.crowd.annotator_model import CrowdModel
from pmflib.solvers.crowd.class_matching import fit_multispa, raise_floor
from pmflib.solvers.crowd.pair_imputation import factor_pairs, impute_by_one_pair, impute_designated
from pmflib.solvers.numeric.rotation import root_of
from pmflib.solvers.pairs.composite import fit_composite

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


def fit_symnmf(data: CoOccurrences) -> CrowdModel:
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
