"""The posterior of the table that a question asks about: how sure it is, and errors and intervals of its measures.

Counts and a model are one source: a Dirichlet over the table of the variables asked for, whose prior is the model.
How many rows a model counts for is learnt from random questions to unseen rows, most of which have conditions that many
samples meet. Where hardly any sample meets the conditions, a model that is right on average says less than that, since
its parameters were estimated from the same samples: `find_known_rows` says how much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.blocks import DenseBlock
from pmflib.counting.conditional_tables import TableRequest
from pmflib.model.conditions import Conditions
from pmflib.model.information import iterate_scores, list_pmfs, sum_information
from pmflib.model.mixture import Mixture
from pmflib.model.questions.evidence import Evidence
from pmflib.model.questions.information import TablePMF, find_chances, measure_answers
from pmflib.model.questions.question import BoundQuestion
from pmflib.schema import Schema
from pmflib.schema.variable import MISSING
from pmflib.solvers.numeric.information import PMFCovariance, PMFInformation, find_covariance

N_DRAWS = 1000
"""Draws from a posterior for the interval of what is no probability: its ends are off by a twentieth of its length."""
DRAWN_CELLS = 20_000_000
"""Cells that are drawn at most, some tenths of a second: of larger tables there are fewer draws."""
LEAST_DRAWS = 100
SURE_ROWS = 3.0
"""Sum of the parameters of a Dirichlet from which on one of its gamma variates at least is no tiny number."""
MAX_ENTRIES = 400
"""Entries of prior and tables up to which their information is inverted for an answer: a tenth of a second."""
MAX_ROWS = 1 << 12
"""Combinations of levels, of what is asked for and given, whose scores are found for an answer."""
LEAST_DRAWN = 2000
"""Rows drawn from the model, at least, that stand for the samples."""
DRAWN_PER_ENTRY = 10
"""Rows drawn for each entry, at least."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """Dirichlet posterior of the table of some variables: one of the first variables, and of the others given each.

    Parameters
    ----------
    schema
        Schema whose variables these are.
    by, targets
        Indices of the first variables, perhaps none, and of the others, at least one in all.
    heads
        float64 of shape (n_by,): parameters of the Dirichlet of the first; a single one where there are none.
    cells
        float64 of shape (n_by, n_targets): parameters of the Dirichlets of the others.
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
        """Rows that the table given each combination of the first variables counts for: (n_by,)."""
        sums: FloatArray = self.cells.sum(axis=1)
        return sums

    def draw(self, seed: int) -> Iterator[TablePMF]:
        """Draw tables, the same for a seed."""
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
    """Draw from Dirichlet distributions along the last axis; all 0 where all parameters are."""
    if (parameters.sum(axis=-1) > SURE_ROWS).all():
        return rng.standard_gamma(parameters)
    # gamma variates of tiny parameters are below the least float: their logarithms are not
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(rng.standard_gamma(parameters + 1)) + (
            np.log(rng.random(parameters.shape)) / parameters
        )
        logs = np.where(parameters > 0, logs, -np.inf)
        shares: FloatArray = np.nan_to_num(np.exp(logs - logs.max(axis=-1, keepdims=True)))
    return shares


def find_beta_intervals(chances: FloatArray, totals: FloatArray, level: float) -> FloatArray:
    """Intervals of probabilities under Dirichlet posteriors.

    Parameters
    ----------
    chances
        float64: posterior means.
    totals
        float64 that broadcasts to them: sums of the parameters of the Dirichlets.
    level
        Posterior probability that the interval holds, in (0, 1); as much lies below as above.

    Returns
    -------
    float64 of shape (..., 2), in [0, 1]; it holds the mean. A mean of 0 is taken for what none of as many rows has
    shown, of even chances before, and one of 1 likewise.

    Examples
    --------
    >>> find_beta_intervals(np.array([0.5, 0.0]), np.array([100.0, 100.0]), 0.95).round(2)
    array([[0.4 , 0.6 ],
           [0.  , 0.04]])
    """
    # it takes as long to load as all the rest of an answer
    from scipy.special import betaincinv

    first, second = chances * totals, (1 - chances) * totals
    # no row and no model is certain
    is_certain = (first <= 0) | (second <= 0)
    first, second = first + is_certain, second + is_certain
    tail = (1 - level) / 2
    ends = [betaincinv(first, second, share) for share in (tail, 1 - tail)]
    # a mean of a very skewed posterior lies outside: the interval holds what is answered
    low, high = np.minimum(ends[0], chances), np.maximum(ends[1], chances)
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
    chances = find_chances(posteriors[0].mean, bound)
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


def is_measurable(model: Mixture) -> bool:
    """Whether the precision of a model's answers is found: of single fits of classes and forests that are not large."""
    if model.trait_model is not None or model.origin.get("final"):
        return False
    return model.rank + model.parameters.tables.size <= MAX_ENTRIES


def list_singles(model: Mixture) -> list[TableRequest]:
    """Tables that the precision of answers takes: how many samples hold each variable."""
    if not is_measurable(model):
        return []
    return [TableRequest((position,)) for position in range(model.schema.n_variables)]


def find_known_rows(
    model: Mixture,
    evidence: Evidence,
    n_fitted: float,
    by: Sequence[int],
    targets: Sequence[int],
    given: Conditions,
) -> FloatArray:
    """Rows that say as much of a table as the samples do through the parameters of a model that is right.

    Parameters
    ----------
    model
        The model, of which `is_measurable` holds.
    evidence
        What it was fitted to, which says how many samples hold each variable.
    n_fitted
        Samples that it was fitted to.
    by, targets
        Positions of the variables that have a table given each of their levels, perhaps none, and of those of it.
    given
        Codes of further variables that are given.

    Returns
    -------
    float64 of shape (n_by,), at least 0: sum of p (1 - p) over the sum of the variances of p, both over the cells of a
    table, less 1, as of a Dirichlet. Infinite where that is not known: of large tables, and of what is not determined.

    Notes
    -----
    Variances are those of the delta method. The information of the parameters is that of drawn rows, whose cells are
    hidden at random as often as those of the samples are; the derivative of the logarithm of a probability is the score
    of a row in which only that is observed.
    """
    sizes = [int(model.schema.cardinalities[each]) for each in (*by, *targets)]
    n_by = math.prod(sizes[: len(by)])
    n_cells = math.prod(sizes)
    if n_cells * math.prod(len(codes) for codes in given.values()) > MAX_ROWS:
        return np.full(n_by, np.inf)
    shares = tuple(
        float(evidence.find(request).sum()) / max(evidence.n_rows, 1)  # type: ignore[union-attr]
        for request in list_singles(model)
    )
    covariance = _find_covariance(model, min(n_fitted, float(evidence.n_rows)), shares)
    chances, slopes = _find_slopes(model, (*by, *targets), given)
    chances, slopes = chances.reshape(n_by, -1), slopes.reshape(n_by, n_cells // n_by, -1)
    totals = chances.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        chances = chances / totals
        slopes = (slopes - chances[:, :, None] * slopes.sum(axis=1, keepdims=True)) / totals[
            :, :, None
        ]
        errors, _ = covariance.spread(np.nan_to_num(slopes).reshape(n_cells, -1))
        variances = np.square(errors).reshape(n_by, -1).sum(axis=1)
        rows = (chances * (1 - chances)).sum(axis=1) / variances - 1
    found: FloatArray = np.where(np.isfinite(rows), np.maximum(rows, 0.0), np.inf)
    return found


@lru_cache(maxsize=4)
def _find_covariance(model: Mixture, n_rows: float, shares: tuple[float, ...]) -> PMFCovariance:
    """Covariance of prior and tables, of so many samples of the model that hold these shares of the variables."""
    parameters = model.parameters
    entries, starts = list_pmfs(parameters)
    rng = np.random.default_rng(0)
    n_drawn = max(LEAST_DRAWN, DRAWN_PER_ENTRY * entries.size)
    codes = _draw_rows(model, n_drawn, rng)
    codes[rng.random(codes.shape) >= np.array(shares)] = MISSING
    drawn = sum_information([DenseBlock(codes)], parameters)
    each = n_rows / n_drawn
    information = PMFInformation(each * drawn.outer, None, each * drawn.gradient, each * drawn.mass)
    return find_covariance(entries, starts, information, np.zeros(entries.size))


def _find_slopes(
    model: Mixture, positions: Sequence[int], given: Conditions
) -> tuple[FloatArray, FloatArray]:
    """Probabilities of the cells of a table and what is given, and their derivatives: (n_cells, n_entries)."""
    parameters, schema = model.parameters, model.schema
    levels = [range(int(schema.cardinalities[each])) for each in positions]
    cells, conditions = list(product(*levels)), list(product(*given.values()))
    rows = np.full((len(cells), len(conditions), schema.n_variables), MISSING, np.int64)
    for position, codes in zip(
        given, np.array(conditions, np.int64).reshape(len(conditions), -1).T, strict=True
    ):
        rows[:, :, position] = codes
    possible = np.ones(rows.shape[:2], bool)
    for position, codes in zip(
        positions, np.array(cells, np.int64).reshape(len(cells), -1).T, strict=True
    ):
        # what is asked for may be given as well
        possible &= (rows[:, :, position] == MISSING) | (rows[:, :, position] == codes[:, None])
        rows[:, :, position] = codes[:, None]
    flat = rows.reshape(-1, schema.n_variables)
    asked = sorted({*positions, *given})
    chances = np.where(possible.ravel(), model.weigh_combinations(asked, flat[:, asked]), 0.0)
    scores = np.concatenate(
        [each.scores for each in iterate_scores([DenseBlock(flat)], parameters)]
    )
    slopes = (chances[:, None] * scores).reshape(len(cells), len(conditions), -1).sum(axis=1)
    return chances.reshape(len(cells), -1).sum(axis=1), slopes


def _draw_rows(model: Mixture, n_rows: int, rng: np.random.Generator) -> IntArray:
    """Samples of a model: of latent classes without compiled code, which takes longer to load than an answer."""
    if model.parameters.forest.n_edges:
        return np.asarray(model.sample(n_rows, rng), np.int64)
    states = rng.choice(model.rank, n_rows, p=model.prior / model.prior.sum())
    columns = []
    for position in range(model.schema.n_variables):
        ends = model.factor(position).cumsum(axis=0)[:-1, states]
        columns.append((rng.random(n_rows) > ends).sum(axis=0))
    return np.stack(columns, axis=1)
