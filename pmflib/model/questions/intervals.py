"""Errors and intervals of each measure under the posterior of an answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.model.questions.binding import BoundQuestion
from pmflib.model.questions.information import find_chances, measure_answers
from pmflib.model.questions.posterior import Posterior, find_beta_intervals


def find_errors(
    bound: BoundQuestion,
    posteriors: Sequence[Posterior],
    combinations: IntArray | None,
    numbers: FloatArray,
    means: FloatArray,
    level: float,
) -> tuple[FloatArray, FloatArray]:
    """Standard deviations of the numbers of an answer, and their intervals.

    Parameters
    ----------
    bound
        The question.
    posteriors
        Posterior of the table of its variables, for each set of conditions.
    combinations
        Those that argmax found, as for `pmflib.model.questions.information.measure_answers`.
    numbers
        Numbers of the answer.
    means
        Those of the posterior mean, of the same shape: others where counts alone answer.
    level
        Posterior probability that an interval holds, in (0, 1).

    Returns
    -------
    float64 of the shape of the numbers, and (..., 2); intervals hold the numbers, and stay where the measure can be.

    Notes
    -----
    Those of probabilities, quantiles and odds are of the Beta marginals of the Dirichlets, others of draws, whose mean
    is moved to the answer.
    """
    measure = bound.question.measure
    if measure in ("P", "argmax", "median", "quantile", "odds"):
        return _find_beta_errors(
            posteriors[0].totals[:, None], numbers, means, level, measure == "odds"
        )
    seeds = np.random.SeedSequence(0).generate_state(len(posteriors)).tolist()
    each_drawn = (p.draw(seed) for p, seed in zip(posteriors, seeds, strict=True))
    draws = np.array(
        [measure_answers(tables, bound, combinations) for tables in zip(*each_drawn, strict=True)]
    )
    tails = [(1 - level) / 2, (1 + level) / 2]
    if measure == "OR":
        return _find_ratio_errors(draws, numbers, tails)
    # what is 0 for independent variables is above it in every draw: the mean of the draws says by how much
    moved = draws - draws.mean(axis=0) + numbers
    intervals = np.stack([*np.quantile(moved, tails, axis=0)], axis=-1)
    intervals = np.clip(intervals, *_find_range(bound))
    if measure != "E":
        return draws.std(axis=0), intervals
    chances = find_chances([each.mean for each in posteriors], bound)
    return find_mean_errors(bound, posteriors[0], chances)[:, None], intervals


def find_mean_errors(bound: BoundQuestion, posterior: Posterior, chances: FloatArray) -> FloatArray:
    """Standard deviations of expected values, (n_by,), by the PMFs of the variable: (n_by, n_levels)."""
    values = bound.schema[bound.groups[0][0]].numeric_values()
    means = chances @ values
    spreads = (chances * (values - means[:, None]) ** 2).sum(axis=1)
    errors: FloatArray = np.sqrt(spreads / (posterior.totals + 1))
    return errors


def _find_range(bound: BoundQuestion) -> tuple[float, float]:
    """Least and greatest value that a measure can have."""
    if bound.question.measure == "E":
        values = bound.schema[bound.groups[0][0]].numeric_values()
        return float(values.min()), float(values.max())
    if bound.question.measure == "TV":
        return 0.0, 1.0
    sizes = bound.schema.cardinalities
    entropies = (float(np.log(sizes[list(group)]).sum()) for group in bound.groups if group)
    return 0.0, min(entropies, default=math.inf)


def _find_ratio_errors(
    draws: FloatArray, numbers: FloatArray, tails: Sequence[float]
) -> tuple[FloatArray, FloatArray]:
    """Errors of an odds ratio, whose logarithm has the spread of the draws, (n_draws, 1, 1), and its interval."""
    known = draws[~np.isnan(draws).any(axis=(1, 2))]
    if not len(known):
        return np.full(numbers.shape, np.nan), np.full((*numbers.shape, 2), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.std(np.log(known), axis=0) * numbers
        # of r / (1 + r) quantiles are finite where a ratio is not
        shares = np.where(np.isinf(known), 1.0, known / (1 + known))
        ends = np.quantile(shares, tails, axis=0)
        return errors, _widen(np.stack([*(ends / (1 - ends))], axis=-1), numbers)


def _find_beta_errors(
    totals: FloatArray, numbers: FloatArray, means: FloatArray, level: float, are_odds: bool
) -> tuple[FloatArray, FloatArray]:
    """Errors of probabilities, and of odds, whose logarithm moves as that of the probability does."""
    chances = means
    if are_odds:
        with np.errstate(invalid="ignore"):
            chances = np.where(np.isinf(chances), 1.0, chances / (1 + chances))
    chances = np.clip(chances, 0.0, 1.0)
    errors = np.sqrt(chances * (1 - chances) / (totals + 1))
    # no row and no model is certain: what was never seen in n rows has a probability of about 1 / n
    errors = np.where((chances <= 0) | (chances >= 1), 1 / (totals + 2), errors)
    intervals = find_beta_intervals(chances, totals, level)
    if are_odds:
        with np.errstate(divide="ignore", invalid="ignore"):
            errors, intervals = errors / (1 - chances) ** 2, intervals / (1 - intervals)
    return errors, _widen(intervals, numbers)


def _widen(intervals: FloatArray, numbers: FloatArray) -> FloatArray:
    """Intervals that hold the numbers."""
    low, high = np.minimum(intervals[..., 0], numbers), np.maximum(intervals[..., 1], numbers)
    return np.stack([low, high], axis=-1)
