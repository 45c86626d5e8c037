"""Posterior of the table of a question, with standard errors and intervals of its measures.

Counts and model are combined in a Dirichlet posterior over the table of the target variables. The model is the prior;
`pmflib.answering.equivalent_samples` determines its equivalent sample size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

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
CURVED = ("H", "MI", "TV")
"""Measures that are convex or concave: at an estimated table they differ on average from those at the true one."""
N_SIMULATED = 250
"""Number of draws for these: the error of their mean is a sixteenth of their deviation."""
LEFT_BIAS = 1 / 3
"""Share of the bias of counted measures that is taken as the standard deviation of what is left of it, because it is
estimated at another table than the true one. With a third, intervals cover .97 of the truths of ``python -m
benchmarks.models.curved tune --levels 20 500 --rows 300 3000 --trials 2``; a quarter leaves no room for other tables.
"""
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
    counted_by, counted
        Numbers of samples of the levels of the first variables, (n_by,), and of the cells, (n_by, n_targets): parts of
        ``heads`` and ``cells``. None without counts.
    """

    schema: Schema
    by: tuple[int, ...]
    targets: tuple[int, ...]
    heads: FloatArray
    cells: FloatArray
    counted_by: FloatArray | None = None
    counted: FloatArray | None = None

    @property
    def mean(self) -> TablePMF:
        """Posterior mean."""
        return self._make(self.heads, self.cells)

    @property
    def totals(self) -> FloatArray:
        """Posterior sample sizes of the tables given each combination of the first variables: (n_by,)."""
        sums: FloatArray = self.cells.sum(axis=1)
        return sums

    @property
    def shares(self) -> TablePMF:
        """Counted shares, with those of the mean where nothing is counted."""
        return self._make(*self._fill(self.counted_by, self.counted))

    def draw_counts(self, seed: int) -> Iterator[TablePMF]:
        """Draw the shares among as many samples as were counted, if the mean were true."""
        assert self.counted is not None
        assert self.counted_by is not None
        rng = np.random.default_rng(seed)
        heads, cells = (_divide(each) for each in (self.heads, self.cells))
        n_by, n = (
            np.ceil(each.sum(axis=-1)).astype(np.int64) for each in (self.counted_by, self.counted)
        )
        for _ in range(self.n_draws):
            drawn = rng.multinomial(n_by, heads), rng.multinomial(n, cells)
            yield self._make(*self._fill(*drawn))

    def _fill(self, by: Any, cells: Any) -> tuple[FloatArray, FloatArray]:
        """Return counts, but the parameters of the posterior where nothing is counted."""
        filled = np.where(cells.sum(axis=1, keepdims=True) > 0, cells, self.cells)
        return by if self.by and by.sum() > 0 else self.heads, filled

    @property
    def n_draws(self) -> int:
        """Number of draws."""
        return int(np.clip(DRAWN_CELLS // max(self.cells.size, 1), LEAST_DRAWS, N_DRAWS))

    def draw(self, seed: int) -> Iterator[TablePMF]:
        """Draw tables, reproducibly for a given seed."""
        rng = np.random.default_rng(seed)
        for _ in range(self.n_draws):
            yield self._make(_draw_shares(rng, self.heads), _draw_shares(rng, self.cells))

    def _make(self, heads: FloatArray, cells: FloatArray) -> TablePMF:
        table = _divide(cells) * _divide(heads)[:, None]
        positions = (*self.by, *self.targets)
        shape = [int(self.schema.cardinalities[position]) for position in positions]
        return TablePMF(self.schema, positions, table.reshape(shape))


def _divide(numbers: FloatArray) -> FloatArray:
    """Divide by sums along the last axis."""
    shares: FloatArray = numbers / np.maximum(numbers.sum(axis=-1, keepdims=True), FLOOR)
    return shares


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
    parameter near 0, and is as sure of it as of nothing else. The outer end therefore rests on one row at least: a
    level that none of n rows has is within 3.7 / n, at 95 % (the rule of three, two-sided).

    References
    ----------
    Hanley and Lippman-Hand (1983), JAMA 249(13): the rule of three.

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
    low = np.where(
        first > 0, betaincinv(np.maximum(first, FLOOR), np.maximum(second, 1), tail), 0.0
    )
    high = np.where(
        second > 0, betaincinv(np.maximum(first, 1), np.maximum(second, FLOOR), 1 - tail), 1.0
    )
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
    whose mean is shifted to the answer. Those of `CURVED` come here only without counts.
    """
    measure = bound.question.measure
    if measure in ("P", "argmax", "median", "quantile", "odds"):
        return _find_beta_errors(
            posteriors[0].totals[:, None], numbers, means, level, measure == "odds"
        )
    draws = _measure_draws(bound, [p.draw(seed) for p, seed in _seed(posteriors)], combinations)
    tails = [(1 - level) / 2, (1 + level) / 2]
    if measure == "OR":
        return _find_ratio_errors(draws, numbers, tails)
    # a measure that is 0 under independence is positive in every draw
    moved = draws - draws.mean(axis=0) + numbers
    intervals = np.stack([*np.quantile(moved, tails, axis=0)], axis=-1)
    intervals = np.clip(intervals, *_find_range(bound))
    if measure != "E":
        # a model is smoother than the truth, and its draws are rougher: half way is within the interval
        known = np.quantile((draws + moved) / 2, tails, axis=0)
        ends = np.minimum(intervals[..., 0], known[0]), np.maximum(intervals[..., 1], known[1])
        return draws.std(axis=0), np.stack(ends, axis=-1)
    chances = find_chances(posteriors[0].mean, bound)
    return find_mean_errors(bound, posteriors[0], chances)[:, None], intervals


def _seed(posteriors: Sequence[Posterior]) -> Iterator[tuple[Posterior, int]]:
    """Pair posteriors with seeds."""
    seeds = np.random.SeedSequence(0).generate_state(len(posteriors)).tolist()
    return zip(posteriors, seeds, strict=True)


def _measure_draws(
    bound: BoundQuestion,
    drawn: Sequence[Iterator[TablePMF]],
    combinations: IntArray | None = None,
) -> FloatArray:
    """Compute the numbers of an answer for each draw of its tables."""
    each = zip(*drawn, strict=True)
    return np.array([measure_answers(tables, bound, combinations) for tables in each])


@dataclass(frozen=True)
class CurvedEstimate:
    """A measure of `CURVED`, and its standard error."""

    number: float
    error: float

    def find_interval(self, bound: BoundQuestion, level: float) -> FloatArray:
        """Normal interval of some level, (1, 1, 2), within the range of the measure."""
        from scipy.special import ndtri

        half = float(ndtri((1 + level) / 2)) * self.error
        ends = np.array([[[self.number - half, self.number + half]]])
        return np.asarray(np.clip(ends, *_find_range(bound)))


def estimate_curved(bound: BoundQuestion, posteriors: Sequence[Posterior]) -> CurvedEstimate:
    """Estimate a measure of `CURVED` from counts and a model.

    Parameters
    ----------
    bound
        The question.
    posteriors
        Posterior of the table of its variables, for each set of conditions, with counts.

    Notes
    -----
    The measure of the posterior mean is too small if the model is smoother than the truth, and that of counts too large
    by their noise. Let f be the measure of the mean, g that of the counted shares, and b and s mean and standard
    deviation of the measures of as many samples drawn from the mean. The departure r = g - b is free of noise on
    average if the mean is right, and says what is missing if it is not: the estimate is f + r^2 / (r^2 + s^2) r, which
    leaves small departures to chance. The bias b - f is that of the mean, and not of the truth, so that a share
    `LEFT_BIAS` of it is added to the variance, squared.

    References
    ----------
    Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapter 10: bias corrected by simulation. Gelman,
    Meng and Stern (1996), Statistica Sinica 6: measures of replicated data compared with those observed.
    """
    found = float(measure_answers([each.mean for each in posteriors], bound)[0, 0])
    counted = float(measure_answers([each.shares for each in posteriors], bound)[0, 0])
    simulated, drawn = (
        _measure_draws(bound, [islice(draw(p, seed), N_SIMULATED) for p, seed in _seed(posteriors)])
        for draw in (Posterior.draw_counts, Posterior.draw)
    )
    mean, spread = float(simulated.mean()), float(simulated.std())
    moved = counted - mean
    moved *= moved**2 / max(moved**2 + spread**2, FLOOR)
    # what was not counted varies by the posterior alone
    error = math.hypot(max(spread, float(drawn.std())), LEFT_BIAS * (mean - found))
    low, high = _find_range(bound)
    return CurvedEstimate(float(np.clip(found + moved, low, high)), error)


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
