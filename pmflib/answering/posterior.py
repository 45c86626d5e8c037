"""Posterior of the table of a question, with standard errors and intervals of its measures.

Counts and model are combined in a Dirichlet posterior over the table of the target variables. The model is the prior;
`pmflib.answering.equivalent_samples` determines its equivalent sample size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pmflib.answering.information import TablePMF, find_chances, measure_answers
from pmflib.answering.question import BoundQuestion
from pmflib.base.arrays import FLOOR, FloatArray, IntArray
from pmflib.schema import Schema

N_DRAWS = 1000
"""Number of posterior draws for intervals of measures other than probabilities; their ends have an error of about a
twentieth of the length."""
DRAWN_CELLS = 20_000_000
"""Maximum number of cells drawn, some tenths of a second; larger tables get fewer draws."""
LEAST_DRAWS = 100
SAFE_PARAMETERS = 3.0
"""Sum of the parameters of a Dirichlet above which at least one of its gamma variates does not underflow."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """Dirichlet posterior of the table of some variables: for the first variables, and for the others given these.

    Parameters
    ----------
    schema
        Schema whose variables these are.
    by, targets
        Indices of the first variables, possibly none, and of the others; at least one in total.
    heads
        float64 of shape (n_by,): parameters of the Dirichlet of the first variables; a single value if there are none.
    cells
        float64 of shape (n_by, n_targets): parameters of the Dirichlets of the other variables.
    """

    schema: Schema
    by: tuple[int, ...]
    targets: tuple[int, ...]
    heads: FloatArray
    cells: FloatArray

    @property
    def mean(self) -> TablePMF:
        """Posterior mean."""
        return self._make(self.heads, self.cells)

    @property
    def totals(self) -> FloatArray:
        """Posterior sample sizes of the tables given each combination of the first variables: (n_by,)."""
        sums: FloatArray = self.cells.sum(axis=1)
        return sums

    def draw(self, seed: int) -> Iterator[TablePMF]:
        """Draw tables, reproducibly for a given seed."""
        rng = np.random.default_rng(seed)
        n_draws = int(np.clip(DRAWN_CELLS // max(self.cells.size, 1), LEAST_DRAWS, N_DRAWS))
        for _ in range(n_draws):
            yield self._make(_draw_shares(rng, self.heads), _draw_shares(rng, self.cells))

    def _make(self, heads: FloatArray, cells: FloatArray) -> TablePMF:
        given = cells / np.maximum(cells.sum(axis=1, keepdims=True), 1e-300)
        table = given * (heads / max(float(heads.sum()), 1e-300))[:, None]
        positions = (*self.by, *self.targets)
        shape = [int(self.schema.cardinalities[position]) for position in positions]
        return TablePMF(self.schema, positions, table.reshape(shape))


def _draw_shares(rng: np.random.Generator, parameters: FloatArray) -> FloatArray:
    """Draw from Dirichlet distributions along the last axis; all 0 if all parameters are 0."""
    if (parameters.sum(axis=-1) > SAFE_PARAMETERS).all():
        return rng.standard_gamma(parameters)
    # gamma variates of tiny parameters underflow, but their logarithms do not
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(rng.standard_gamma(parameters + 1)) + (
            np.log(rng.random(parameters.shape)) / parameters
        )
        logs = np.where(parameters > 0, logs, -np.inf)
        shares: FloatArray = np.nan_to_num(np.exp(logs - logs.max(axis=-1, keepdims=True)))
    return shares


def find_beta_intervals(chances: FloatArray, totals: FloatArray, level: float) -> FloatArray:
    """Compute intervals of probabilities under Dirichlet posteriors.

    Parameters
    ----------
    chances
        float64: posterior means.
    totals
        float64 that broadcasts to them: sums of the parameters of the Dirichlets.
    level
        Probability of the central interval, in (0, 1).

    Returns
    -------
    float64 of shape (..., 2), in [0, 1]; the interval contains the mean.

    Notes
    -----
    The prior of a table is spread over all of its levels, so that the Beta marginal of a level without rows has a
    parameter near 0, and is as sure of it as of nothing else. A level is compared with all others together: the upper
    end allows for a row more that has the level, and the lower end for a row more that has not, as those of Clopper and
    Pearson do. A level that none of n rows has is then within 3.7 / n, at 95 % (the rule of three, two-sided).

    References
    ----------
    Clopper and Pearson (1934), Biometrika 26. Korn and Graubard (1998), Survey Methodology 24(2): the same with
    effective numbers of rows.

    Examples
    --------
    >>> find_beta_intervals(np.array([0.5, 0.0]), np.array([100.0, 100.0]), 0.95).round(2)
    array([[0.4 , 0.6 ],
           [0.  , 0.04]])
    """
    # importing it takes as long as the rest of an answer
    from scipy.special import betaincinv

    first, second = np.maximum(chances * totals, 0.0), np.maximum((1 - chances) * totals, 0.0)
    tail = (1 - level) / 2
    # a parameter of 0 is a certain level, whose end is the mean itself
    low = np.where(first > 0, betaincinv(np.maximum(first, FLOOR), second + 1, tail), 0.0)
    high = np.where(second > 0, betaincinv(first + 1, np.maximum(second, FLOOR), 1 - tail), 1.0)
    # the mean of a very skewed posterior lies outside; extend the interval to contain the answer
    low, high = np.minimum(low, chances), np.maximum(high, chances)
    found: FloatArray = np.clip(np.stack([low, high], axis=-1), 0.0, 1.0)
    return found


def find_errors(
    bound: BoundQuestion,
    posteriors: Sequence[Posterior],
    combinations: IntArray | None,
    numbers: FloatArray,
    means: FloatArray,
    level: float,
) -> tuple[FloatArray, FloatArray]:
    """Compute standard deviations of the numbers of an answer, and their intervals.

    Parameters
    ----------
    bound
        The question.
    posteriors
        Posterior of the table of its variables, for each set of conditions.
    combinations
        Combinations for argmax, as for `pmflib.answering.information.measure_answers`.
    numbers
        Numbers of the answer.
    means
        Numbers from the posterior mean, of the same shape; they differ if only counts are used.
    level
        Posterior probability of an interval, in (0, 1).

    Returns
    -------
    float64 of the shape of the numbers, and (..., 2); intervals contain the numbers and lie in the range of the
    measure.

    Notes
    -----
    For probabilities, quantiles and odds, the Beta marginals of the Dirichlets are used; for other measures, draws
    whose mean is shifted to the answer.
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
    # a measure that is 0 under independence is positive in every draw; the mean of the draws estimates this bias
    moved = draws - draws.mean(axis=0) + numbers
    intervals = np.stack([*np.quantile(moved, tails, axis=0)], axis=-1)
    intervals = np.clip(intervals, *_find_range(bound))
    if measure != "E":
        return draws.std(axis=0), intervals
    chances = find_chances(posteriors[0].mean, bound)
    return find_mean_errors(bound, posteriors[0], chances)[:, None], intervals


def find_mean_errors(bound: BoundQuestion, posterior: Posterior, chances: FloatArray) -> FloatArray:
    """Compute standard deviations of expected values, (n_by,), from the PMFs of the variable, (n_by, n_levels)."""
    values = bound.schema[bound.groups[0][0]].numeric_values()
    means = chances @ values
    spreads = (chances * (values - means[:, None]) ** 2).sum(axis=1)
    errors: FloatArray = np.sqrt(spreads / (posterior.totals + 1))
    return errors


def _find_range(bound: BoundQuestion) -> tuple[float, float]:
    """Return the minimum and maximum possible value of the measure."""
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
    """Compute standard error (from the spread of its logarithm) and interval of an odds ratio from its draws."""
    known = draws[~np.isnan(draws).any(axis=(1, 2))]
    if not len(known):
        return np.full(numbers.shape, np.nan), np.full((*numbers.shape, 2), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.std(np.log(known), axis=0) * numbers
        # quantiles of r / (1 + r) are finite even if a ratio is infinite
        shares = np.where(np.isinf(known), 1.0, known / (1 + known))
        ends = np.quantile(shares, tails, axis=0)
        return errors, _widen(np.stack([*(ends / (1 - ends))], axis=-1), numbers)


def _find_beta_errors(
    totals: FloatArray, numbers: FloatArray, means: FloatArray, level: float, are_odds: bool
) -> tuple[FloatArray, FloatArray]:
    """Compute standard errors of probabilities, or of odds by the delta method, and their intervals."""
    chances = means
    if are_odds:
        with np.errstate(invalid="ignore"):
            chances = np.where(np.isinf(chances), 1.0, chances / (1 + chances))
    chances = np.clip(chances, 0.0, 1.0)
    # no number of rows makes an event certain: at least the error of one never seen in them, under a uniform prior
    unseen = np.sqrt((totals + 1) / (totals + 3)) / (totals + 2)
    errors = np.maximum(np.sqrt(chances * (1 - chances) / (totals + 1)), unseen)
    intervals = find_beta_intervals(chances, totals, level)
    if are_odds:
        with np.errstate(divide="ignore", invalid="ignore"):
            errors, intervals = errors / (1 - chances) ** 2, intervals / (1 - intervals)
    return errors, _widen(intervals, numbers)


def _widen(intervals: FloatArray, numbers: FloatArray) -> FloatArray:
    """Extend intervals to contain the numbers."""
    low, high = np.minimum(intervals[..., 0], numbers), np.maximum(intervals[..., 1], numbers)
    return np.stack([low, high], axis=-1)
