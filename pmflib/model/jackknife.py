"""Fits without each fold of the counts, and standard errors of what follows from them."""

from __future__ import annotations

import numpy as np

from pmflib.core.arrays import FloatArray, Parameters
from pmflib.core.errors import PmfError, SchemaError
from pmflib.counting.marginals import Marginals
from pmflib.counting.pair_counts import PairCounts
from pmflib.model.metrics import match_factors
from pmflib.model.mixture import Mixture
from pmflib.solvers.pairs.composite import fit_composite

MAX_ITERATIONS = 500
"""Updates of each fit at most; from the model they start near their end."""
TOLERANCE = 1e-8
"""Relative fall of the loss at which a fit has converged: differences of fits are the errors, so that they have to
converge further than a single fit would."""


def estimate_standard_errors(counts: PairCounts, model: Mixture) -> Parameters:
    """Jackknife over the folds: standard errors of the prior and of all conditional probabilities.

    Parameters
    ----------
    counts
        With at least two folds that hold samples.
    model
        Model of the counts' schema: where the fits start, and whose states the errors are for.

    Returns
    -------
    Prior's errors (rank,) and factors' errors (n_levels, rank), probabilities, 0 where every fold agrees.

    Raises
    ------
    SchemaError
        If the model is of another schema, or fewer than two folds hold samples.

    Notes
    -----
    The errors are those of the pairwise composite fit (`fit_composite`, weights by support, no pseudo-counts), an upper
    bound for EM on many samples. They are the spread around the optimum that the model is in: they do not show that
    there may be another one, nor the bias of a rank too small. Time is a warm fit per fold, no pass over the samples.

    References
    ----------
    Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapter 11: delete-a-group jackknife.
    """
    priors, factors = refit_without_folds(counts, model)
    return measure_spread(priors), measure_spread(factors)


def refit_without_folds(counts: PairCounts, model: Mixture) -> Parameters:
    """Fit again without each fold, from the model: what `measure_spread` has standard errors from.

    Parameters
    ----------
    counts, model
        As for `estimate_standard_errors`.

    Returns
    -------
    Priors (n_folds, rank) and factors (n_folds, n_levels, rank) of the fits, states in the order of the model's; a fit
    per fold that holds samples.

    Raises
    ------
    SchemaError
        As `estimate_standard_errors` does.
    """
    if counts.schema.digest != model.schema.digest:
        raise SchemaError("model and counts are of different schemas; take both from one run")
    if why := model.unsupported.get("jackknife"):
        raise PmfError(why)
    filled = np.flatnonzero(counts.n_rows > 0).tolist()
    if len(filled) < 2:
        raise SchemaError(
            f"{len(filled)} of {counts.n_folds} folds hold samples, a jackknife needs 2; count with more folds"
        )
    whole = counts.select_folds(filled)
    start = refit(whole, (model.prior, model.factors))
    priors, factors = [], []
    for fold in range(whole.n_folds):
        prior, stacked = refit(whole.drop_folds([fold]), start)
        order = match_factors(model.prior, model.factors, prior, stacked)
        priors.append(prior[order])
        factors.append(stacked[:, order])
    return np.stack(priors), np.stack(factors)


def refit(counts: PairCounts, initial: Parameters) -> Parameters:
    """Fit the pair counts of some folds by `fit_composite`, as tightly as differences between folds need.

    Parameters
    ----------
    counts
        All its folds are taken together.
    initial
        Prior (rank,) and factors (n_levels, rank) to start from.

    Returns
    -------
    Prior and factors, of the same shapes.

    Raises
    ------
    SchemaError, PmfError
        If the start does not fit the counts.
    """
    marginals = Marginals.from_counts(counts)
    found = fit_composite(
        marginals.pairs,
        marginals.offsets,
        marginals.observed,
        initial=initial,
        weights=marginals.support,
        max_iter=MAX_ITERATIONS,
        tol=TOLERANCE,
    )
    return found.prior, found.factors


def measure_spread(estimates: FloatArray) -> FloatArray:
    """Jackknife standard error.

    Parameters
    ----------
    estimates
        float64 of shape (n_folds, ...): an estimate without each fold.

    Returns
    -------
    float64 of shape (...), >= 0; NaN where an estimate is NaN.
    """
    n_folds = len(estimates)
    around = estimates - estimates.mean(axis=0)
    errors: FloatArray = np.sqrt((n_folds - 1) / n_folds * (around**2).sum(axis=0))
    return errors
