"""Equivalent sample size of a model: the concentration m of the Dirichlet prior that it defines for observed counts.

Given n samples with shares q and a model with probabilities p, an answer is (n q + m p) / (n + m). The unknown m is
larger the smaller the bias of the model is for a question. Its logarithm has a normal prior, whose mean is linear in
features of the question, and is updated by the counts of the answer itself. Probabilities and means of ordered values
have separate values of m, because a table has one degree of freedom less than it has levels, and a mean has one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Annotated, Any

import numpy as np

from pmflib.answering.conditional_tables import TableRequest
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.errors import PmfError
from pmflib.base.json_records import Form, JsonRecord
from pmflib.model.conditions import Conditions
from pmflib.model.mixture import Mixture

COEFFICIENTS = (2.61, 4.05, 5.20, 4.97, 0.36, 0.13, 0.40, -0.07)
"""Coefficients of the mean of log m over many models: see `EquivalentSamples`. This and the next two are printed by
``python -m benchmarks.models.answers --law``, which fits them to questions to stacks of public and drawn tables."""
SPREADS = (1.95, 2.41)
"""Standard deviations of log m for probabilities and for means."""
TRUSTS = (0.96, 0.70)
"""Powers, in (0, 1), of the likelihood of an answer's own counts, because the model was fitted to the same samples."""
PRIOR_SPREADS = (1.0,) * 5 + (0.3, 0.3, 0.2) + (0.3, 0.3) + (0.7, 0.7)
"""Prior standard deviations, between models, of the coefficients, of the logarithms of the spreads, and of the logits
of the trusts: wide for those that a few held-out rows determine; not tuned."""
DISCOUNT = 3.0
"""Factor by which the posterior sample size is reduced for intervals, though not below the number of counted rows if it
exceeds that: m describes all cells of a table, some of which deviate more from the model than others."""
LOGS = np.linspace(-2.0, 12.0, 29)
"""Grid of values of log m."""
MOST_TIMES = 10.0
"""Maximum of m as a multiple of the number of training rows."""
MOST_CELLS = 1 << 13
"""Maximum number of cells of a table of two variables to compare: 1,600 questions need thousands of these tables."""
MOST_VARIABLES = 4
"""Number of variables, targets and conditions, from which questions share one intercept."""
N_QUESTIONS = 400
"""Number of questions drawn for each number of variables."""
LEAST_CHANCE = 1e-9
"""Floor for level probabilities."""
MIDDLE = 4.5
"""Logarithm of 90 rows, about the average m; it is subtracted from features."""

CountTables = Callable[[Sequence[TableRequest]], Sequence[IntArray]]
"""Function that counts the tables of some requests among some samples: int64, shaped by the targets' cardinalities."""
FindPair = Callable[[int, int], tuple[IntArray, FloatArray]]
"""Function of the positions of two variables that returns counts and probabilities, (cardinality, cardinality) each."""


@dataclass(frozen=True)
class PairTable:
    """Counts and probabilities of a target and a condition.

    Parameters
    ----------
    counts
        int64 of shape (n_target, n_condition): number of samples with each combination of levels.
    chances
        float64 of the same shape: probabilities under the model.
    codes
        Given levels of the second variable; empty if it is a target as well.
    """

    counts: IntArray
    chances: FloatArray
    codes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Counts and model probabilities of one table, and of the pairs of its variables.

    Parameters
    ----------
    n_variables
        Number of variables of the question, targets and conditions, at least 1.
    chances
        float64 of shape (n_cells,), sums to 1: probabilities under the model.
    counts
        Array of the same shape: samples that meet the conditions. None without counts.
    pairs
        Tables of each target with each condition; without conditions, of each two targets.
    values
        float64 of shape (n_cells,): value of each level if a mean is requested; None for probabilities. The mean of two
        levels is treated as a probability.
    """

    n_variables: int
    chances: FloatArray
    counts: IntArray | None
    pairs: Sequence[PairTable] = ()
    values: FloatArray | None = None

    @property
    def kind(self) -> int:
        """0 for probabilities, 1 for means."""
        return int(self.values is not None and len(self.values) > 2)


@dataclass(frozen=True)
class EquivalentSizes:
    """Equivalent sample sizes in an answer.

    Parameters
    ----------
    rows
        m of the model: the answer is (n q + m p) / (n + m), for n counted rows with shares q and model probabilities p.
    total
        Equivalent sample size of counts and model together: the sum of the parameters of the Dirichlet posterior.
    """

    rows: float
    total: float


@dataclass(frozen=True)
class EquivalentSamples(JsonRecord):
    """Prior distribution of the equivalent sample size m, learnt from one model or from many others.

    Parameters
    ----------
    coefficients
        Coefficients of the mean of log m: intercepts for questions of 1, 2, 3, and 4 or more variables, the offset of a
        mean relative to a probability, and the effects of the two features of `find_features` and of the logarithm of
        the number of samples.
    spreads, trusts
        Standard deviation of log m, and power of the likelihood of the counts of the answer, for probabilities and for
        means.
    n_fitted
        Number of samples that the model was fitted to, above 0; infinite if unknown.
    n_questions, n_unseen
        Numbers of questions and of held-out rows from which this was learnt; 0 if it comes from other models.
    """

    coefficients: tuple[float, ...] = COEFFICIENTS
    spreads: tuple[float, ...] = SPREADS
    trusts: tuple[float, ...] = TRUSTS
    n_fitted: Annotated[float, Form.UNKNOWN] = math.inf
    n_questions: int = 0
    n_unseen: int = 0

    def weigh(self, question: Comparison) -> EquivalentSizes:
        """Compute the equivalent sample size of a model for a question.

        Parameters
        ----------
        question
            Counts and model probabilities.

        Notes
        -----
        log m is normal a priori. The likelihood of the counts is Dirichlet-multinomial with parameters m p; that of a
        counted mean is normal with variance v / m + v / n, where v is the variance of a row. The mean and the variance
        of the answer are taken over the posterior of m.
        """
        laws = self._find_laws(question)
        counts, chances = question.counts, question.chances
        n = 0.0 if counts is None else float(counts.sum())
        shares = chances if counts is None or not n else counts.ravel() / n
        m = np.exp(LOGS)
        weights = m / (n + m)
        weight = float(laws @ weights)
        if question.kind:
            assert question.values is not None
            values = question.values - float(chances @ question.values)
            ends = [(float(each @ values), float(each @ values**2)) for each in (shares, chances)]
            (first, square), (second, other) = ends
            means, squares = (a + weights * (b - a) for a, b in zip(*ends, strict=True))
            apart = (second - first) ** 2
            spread = square + weight * (other - square) - (first + weight * (second - first)) ** 2
            spreads = squares - means**2
        else:
            moved = chances - shares
            apart = float(moved @ moved)
            parts = float(shares @ shares), float(shares @ moved), apart
            spreads = 1 - (parts[0] + 2 * weights * parts[1] + weights**2 * parts[2])
            spread = 1 - (parts[0] + 2 * weight * parts[1] + weight**2 * parts[2])
        variance = float(laws @ (spreads / (n + m + 1) + (weights - weight) ** 2 * apart))
        rows = n * weight / max(1 - weight, 1e-12) if n else 1 / float(laws @ (1 / (m + 1))) - 1
        total = spread / variance - 1 if spread > 1e-12 and variance > 0 else n + rows
        return EquivalentSizes(rows, max(min(n, total), total / DISCOUNT))

    def _find_laws(self, question: Comparison) -> FloatArray:
        """Compute the posterior probabilities of the grid values of log m."""
        n_fitted = self.n_fitted if math.isfinite(self.n_fitted) else None
        features = describe(question, n_fitted)
        mean = float(np.clip(np.array(self.coefficients) @ features, LOGS[0], LOGS[-1]))
        logs = -np.square((LOGS - mean) / self.spreads[question.kind]) / 2
        if question.counts is not None and question.counts.any():
            logs += self.trusts[question.kind] * find_own_likelihood(question)
        logs[LOGS > max(math.log(MOST_TIMES * self.n_fitted), LOGS[0])] = -np.inf
        shares = np.exp(logs - logs.max())
        laws: FloatArray = shares / shares.sum()
        return laws

    def __str__(self) -> str:
        """Return a one-line description."""
        rows = ", ".join(f"{math.exp(each):,.0f}" for each in self.coefficients[:MOST_VARIABLES])
        if not self.n_questions:
            return "as many rows as other models on average: no rows were held out to learn it from"
        return (
            f"{rows} rows for 1, 2, 3, and {MOST_VARIABLES} variables or more before features and counts (learnt from "
            f"{self.n_questions:,} questions to {self.n_unseen:,} unseen rows)"
        )


NAME = "equivalent_samples"
"""Key in the origin of a model."""


def find_equivalent_samples(origin: Mapping[str, Any]) -> EquivalentSamples:
    """Return the equivalent samples stored in the origin of a model, or else those learnt from other models."""
    found = origin.get(NAME)
    # earlier releases stored a different regression
    if found is None or len(found.get("coefficients", ())) != len(COEFFICIENTS):
        return EquivalentSamples()
    return EquivalentSamples.from_json(found)


def describe(question: Comparison, n_fitted: float | None) -> FloatArray:
    """Return the features of a question in the order of `EquivalentSamples.coefficients`; unknown ones are 0."""
    found = np.zeros(len(COEFFICIENTS))
    found[min(question.n_variables, MOST_VARIABLES) - 1] = 1.0
    found[MOST_VARIABLES] = question.kind
    found[MOST_VARIABLES + 1 : -1] = find_features(question)
    if n_fitted is not None:
        found[-1] = math.log(n_fitted) - 7
    return found


def find_features(question: Comparison) -> FloatArray:
    """Compute features on the fit of a model for a question from the counts of pairs of variables.

    Parameters
    ----------
    question
        Counts and model probabilities.

    Returns
    -------
    float64 of shape (2,): average log m implied by the deviation of counts from the model, first for the targets given
    the levels of each condition, then for these pairs over all levels; minus `MIDDLE`, and 0 without pairs. Let D be
    the Kullback-Leibler divergence of the shares among n counts from the model, with d degrees of freedom. Under a
    Dirichlet of concentration m, D is on average d / 2m + d / 2n, so that m is estimated by d / 2 (D - d / 2n), where
    d / 2n is sampling noise. For means, D is the squared difference of the means divided by twice the variance of a
    row, and d is 1.
    """
    levels, wholes = [], []
    values = question.values if question.kind else None
    for pair in question.pairs:
        given = pair.chances / np.maximum(pair.chances.sum(axis=0), LEAST_CHANCE)
        wholes.append(_imply(pair.counts, given, values))
        if pair.codes:
            codes = list(pair.codes)
            chosen = pair.chances[:, codes].sum(axis=1)
            chosen = chosen / max(float(chosen.sum()), LEAST_CHANCE)
            counts = pair.counts[:, codes].sum(axis=1)
            levels.append(_imply(counts[:, None], chosen[:, None], values))
    if not wholes:
        return np.zeros(2)
    found = [np.mean(levels) if levels else np.mean(wholes), np.mean(wholes)]
    features: FloatArray = np.clip(found, -2.0, 10.0) - MIDDLE
    return features


def _imply(counts: IntArray, chances: FloatArray, values: FloatArray | None) -> float:
    """Estimate the log m implied by counts of shape (n_levels, n_columns), with one distribution per column."""
    n = counts.sum(axis=0)
    total = max(float(n.sum()), 1.0)
    shares = counts / np.maximum(n, 1)
    freedom = 1
    if values is None:
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(counts > 0, np.log(shares / np.maximum(chances, LEAST_CHANCE)), 0.0)
        departure = float((counts * terms).sum()) / total
        freedom = max(len(counts) - 1, 1)
    else:
        moved = values - values.min()
        means = moved @ chances
        spreads = np.maximum(
            moved**2 @ chances - means**2, 1e-12 * float(np.ptp(moved)) ** 2 + 1e-300
        )
        departure = float((n * (moved @ shares - means) ** 2 / (2 * spreads)).sum()) / total
    noise = freedom * max(int(np.count_nonzero(n)), 1) / (2 * total)
    return math.log(freedom / (2 * (max(departure - noise, 0.0) + noise)))


def find_own_likelihood(question: Comparison) -> FloatArray:
    """Compute the log-likelihood of the counts of a question for each value of log m, up to a constant."""
    counts, chances = question.counts, question.chances
    assert counts is not None
    counts = counts.ravel()
    if not question.kind:
        return _add_counts(np.zeros(counts.size), counts, chances)
    first, second, variance = _find_means(question)
    variances = variance * (np.exp(-LOGS) + 1 / float(counts.sum()))
    return _add_normal(second - first, variances)


def find_unseen_likelihood(question: Comparison, unseen: IntArray) -> FloatArray:
    """Compute the log-likelihood of held-out counts of a question, given the training counts, for each log m."""
    counts = question.counts
    assert counts is not None
    counts = counts.ravel()
    if not question.kind:
        return _add_counts(counts, unseen, question.chances)
    assert question.values is not None
    first, second, variance = _find_means(question)
    n, m = float(counts.sum()), np.exp(LOGS)
    means = first + m / (n + m) * (second - first)
    mean = float(unseen @ question.values) / float(unseen.sum())
    return _add_normal(mean - means, variance * (1 / float(unseen.sum()) + 1 / (n + m)))


def _find_means(question: Comparison) -> tuple[float, float, float]:
    """Compute the means under counts and under the model, and the variance of a row."""
    counts, chances, values = question.counts, question.chances, question.values
    assert counts is not None
    assert values is not None
    counts, n = counts.ravel(), float(counts.sum())
    mixed = (counts + math.exp(MIDDLE) * chances) / (n + math.exp(MIDDLE))
    second = float(chances @ values)
    first = float(counts @ values) / n if n else second
    variance = float(mixed @ values**2 - (mixed @ values) ** 2)
    return first, second, max(variance, 1e-12 * float(np.ptp(values)) ** 2 + 1e-300)


def _add_counts(before: FloatArray | IntArray, added: IntArray, chances: FloatArray) -> FloatArray:
    """Compute log-probabilities of counts: Dirichlet-multinomial with parameters m p plus the earlier counts."""
    from scipy.special import gammaln

    held = np.flatnonzero(added)
    m = np.exp(LOGS)[:, None]
    parameters = m * np.maximum(chances[held], LEAST_CHANCE) + before[held]
    gained = (gammaln(parameters + added[held]) - gammaln(parameters)).sum(axis=1)
    totals = m[:, 0] + float(before.sum())
    found: FloatArray = gained + gammaln(totals) - gammaln(totals + float(added.sum()))
    return found


def _add_normal(distances: FloatArray | float, variances: FloatArray) -> FloatArray:
    """Compute normal log-densities up to a constant."""
    found: FloatArray = -(np.log(variances) + np.square(distances) / variances) / 2
    return found


@dataclass(frozen=True, eq=False)
class QuestionLikelihoods:
    """Questions on held-out rows: features, likelihoods of training and held-out counts by log m, kinds, weights."""

    features: FloatArray
    own: FloatArray
    unseen: FloatArray
    kinds: IntArray
    weights: FloatArray
    n_questions: int


def learn_equivalent_samples(
    model: Mixture,
    unseen: IntArray,
    count_seen: CountTables,
    count_unseen: CountTables,
    n_seen: int,
    seed: int = 0,
    n_questions: int = N_QUESTIONS,
    prior: EquivalentSamples | None = None,
) -> EquivalentSamples:
    """Learn the equivalent sample size of a model from random questions on held-out samples.

    Parameters
    ----------
    model
        The model.
    unseen
        Codes of shape (n_rows, n_variables) of held-out samples; conditions are drawn from their rows, so that common
        and rare conditions occur with realistic frequencies.
    count_seen, count_unseen
        Functions that count tables among the training samples, or some of them, and among the held-out samples.
    n_seen
        Number of samples that the model was fitted to.
    seed
        Seed of the random questions.
    n_questions
        Number of questions drawn for each number of variables, at least 1.
    prior
        Distribution to begin with; None is that over many models.

    Returns
    -------
    The posterior mode. Without held-out samples it is the prior.

    Notes
    -----
    The likelihood of a question is that of the held-out counts given the training counts, with the unknown m summed
    out. The questions with a given number of variables use each held-out value many times, so their log-likelihoods are
    weighted to count it once. Otherwise, chance agreement in the held-out rows would be mistaken for an exact model.

    References
    ----------
    Heckerman, Geiger and Chickering (1995), Learning Bayesian networks: equivalent sample size. Gelman et al. (2013),
    Bayesian Data Analysis, chapter 5: hierarchical models.
    """
    prior = prior or EquivalentSamples()
    likelihoods = ask_unseen(model, unseen, count_seen, count_unseen, n_seen, seed, n_questions)
    if likelihoods is None:
        return prior
    start = replace(prior, n_fitted=float(max(n_seen, 1)))
    found = maximise([likelihoods], start, np.array(PRIOR_SPREADS))
    return replace(found, n_questions=likelihoods.n_questions, n_unseen=len(unseen))


def ask_unseen(
    model: Mixture,
    unseen: IntArray,
    count_seen: CountTables,
    count_unseen: CountTables,
    n_seen: int,
    seed: int,
    n_questions: int = N_QUESTIONS,
) -> QuestionLikelihoods | None:
    """Evaluate random questions on held-out rows; see `learn_equivalent_samples`. None if no row answers any."""
    sizes = model.schema.cardinalities
    requests = [
        each
        for each in draw_questions(unseen, seed, n_questions)
        if len(each.targets) == 1 or is_comparable(sizes, *each.targets)
    ]
    needed = sorted(
        {
            (min(pair), max(pair))
            for each in requests
            for *pair, _ in list_pairs(each.targets, dict(each.given), sizes)
        }
    )
    seen = count_seen([*requests, *(TableRequest(pair) for pair in needed)])
    pairs = dict(zip(needed, seen[len(requests) :], strict=True))
    known: dict[tuple[int, int], FloatArray] = {}

    def find_pair(first: int, second: int) -> tuple[IntArray, FloatArray]:
        key = (min(first, second), max(first, second))
        if key not in known:
            known[key] = model.marginal(key)
        both = pairs[key], known[key]
        return both if key[0] == first else (both[0].T, both[1].T)

    asked: list[tuple[Comparison, IntArray]] = []
    n_asked = 0
    for request, counts, others in zip(
        requests, seen[: len(requests)], count_unseen(requests), strict=True
    ):
        if not others.any():
            continue
        try:
            question = compare_table(model, request, counts, find_pair)
        except PmfError:
            # if the conditions are impossible under the model, counts alone answer
            continue
        n_asked += 1
        asked.append((question, others.ravel()))
        variable = model.schema[request.targets[0]]
        if len(request.targets) == 1 and variable.values is not None and variable.cardinality > 2:
            mean = replace(question, values=variable.numeric_values())
            asked.append((mean, others.ravel()))
    if not asked:
        return None
    features = np.array([describe(each, float(max(n_seen, 1))) for each, _ in asked])
    kinds = np.array([each.kind for each, _ in asked])
    # hundreds of questions use the same values, each of which must count once
    groups = np.array([min(each.n_variables, MOST_VARIABLES) for each, _ in asked]) + 10 * kinds
    n_used = np.array([float(others.sum()) for _, others in asked])
    n_values = np.count_nonzero(unseen >= 0)
    weights = np.array([min(n_values / n_used[groups == each].sum(), 1.0) for each in groups])
    none = np.zeros(LOGS.size)
    own = [
        find_own_likelihood(each) if each.counts is not None and each.counts.any() else none
        for each, _ in asked
    ]
    after = [find_unseen_likelihood(each, others) for each, others in asked]
    return QuestionLikelihoods(features, np.array(own), np.array(after), kinds, weights, n_asked)


def compare_table(
    model: Mixture, request: TableRequest, counts: IntArray, find_pair: FindPair
) -> Comparison:
    """Compare a model with the counts of a request.

    Parameters
    ----------
    model
        The model.
    request
        Targets and conditions.
    counts
        int64, shaped by the cardinalities of the targets: samples that meet the conditions.
    find_pair
        Function that returns counts and probabilities of two variables.

    Raises
    ------
    PmfError
        If the model gives the conditions probability 0.
    """
    given = dict(request.given)
    chances = model.condition_codes(given)[0].marginal(request.targets).ravel()
    chances = np.maximum(chances, LEAST_CHANCE)
    compared = list_pairs(request.targets, given, model.schema.cardinalities)
    pairs = [PairTable(*find_pair(first, second), codes) for first, second, codes in compared]
    n_variables = len(request.targets) + len(request.given)
    return Comparison(n_variables, chances / chances.sum(), counts.ravel(), pairs)


def draw_questions(
    unseen: IntArray, seed: int, n_questions: int = N_QUESTIONS
) -> list[TableRequest]:
    """Draw questions of 1 to 4 variables, a quarter with two targets, with conditions met by rows of some samples.

    Parameters
    ----------
    unseen
        Codes of shape (n_rows, n_variables), -1 missing.
    seed
        Seed of the draws.
    n_questions
        Number of draws for each number of variables.

    Returns
    -------
    Distinct requests, in an order that depends only on the arguments.
    """
    rng = np.random.default_rng(seed)
    found: dict[TableRequest, None] = {}
    if not len(unseen):
        return []
    for n_variables in range(1, MOST_VARIABLES + 1):
        for n in range(n_questions):
            row = unseen[rng.integers(len(unseen))]
            observed = np.flatnonzero(row >= 0)
            if observed.size < n_variables:
                continue
            chosen = rng.choice(observed, n_variables, replace=False).tolist()
            n_targets = 2 if n_variables > 1 and n % 4 == 0 else 1
            given = sorted((place, (int(row[place]),)) for place in chosen[n_targets:])
            found[TableRequest(tuple(chosen[:n_targets]), tuple(given))] = None
    return list(found)


def list_pairs(
    targets: Sequence[int], given: Conditions, sizes: IntArray
) -> list[tuple[int, int, tuple[int, ...]]]:
    """List the pairs of variables from which the features of a question are computed.

    Parameters
    ----------
    targets
        Target variables.
    given
        Codes of the conditioning variables.
    sizes
        int64 of shape (n_variables,): cardinalities.

    Returns
    -------
    Each target with each other conditioning variable, and the codes of the latter; without conditions, each two
    targets, without codes. Pairs whose tables are too large are left out.
    """
    found = [(target, *known) for target in targets for known in given.items()]
    if not given:
        found = [(first, second, ()) for first, second in combinations(targets, 2)]
    return [each for each in found if each[0] != each[1] and is_comparable(sizes, *each[:2])]


def is_comparable(sizes: IntArray, first: int, second: int) -> bool:
    """Return whether the table of two variables is small enough to be compared."""
    return int(sizes[first]) * int(sizes[second]) <= MOST_CELLS


def maximise(
    likelihoods: Sequence[QuestionLikelihoods], start: EquivalentSamples, deviations: FloatArray
) -> EquivalentSamples:
    """Find the posterior mode of the distribution of m.

    Parameters
    ----------
    likelihoods
        Questions on the held-out rows of one model, or of several.
    start
        Mean of the prior; ``n_fitted`` limits m.
    deviations
        float64 of shape (12,): standard deviations of the prior, in the order of `PRIOR_SPREADS`.
    """
    # importing it takes longer than an answer, and fitted models have already been through this step
    from scipy.optimize import minimize
    from scipy.special import expit, logit

    features, own, unseen = (
        np.concatenate([getattr(each, name) for each in likelihoods])
        for name in ("features", "own", "unseen")
    )
    kinds = np.concatenate([each.kinds for each in likelihoods])
    weights = np.concatenate([each.weights for each in likelihoods])
    n = features.shape[1]
    prior = np.r_[start.coefficients, np.log(start.spreads), logit(start.trusts)]
    limit = math.log(MOST_TIMES * start.n_fitted) if math.isfinite(start.n_fitted) else math.inf
    ruled_out = np.where(max(limit, LOGS[0]) < LOGS, -np.inf, 0.0)
    is_kind = kinds[:, None] == np.arange(2)

    def find_loss(point: FloatArray) -> tuple[float, FloatArray]:
        spreads, trusts = np.exp(point[n : n + 2])[kinds], expit(point[n + 2 :])[kinds]
        line = features @ point[:n]
        inside = (line > LOGS[0]) & (line < LOGS[-1])
        z = (LOGS - np.clip(line, LOGS[0], LOGS[-1])[:, None]) / spreads[:, None]
        before = trusts[:, None] * own - z**2 / 2 + ruled_out
        (first, laws), (second, after) = _normalise(before), _normalise(before + unseen)
        moved = after - laws
        slopes = np.r_[
            (weights * inside * (moved * z).sum(axis=1) / spreads) @ features,
            (weights * (moved * z**2).sum(axis=1)) @ is_kind,
            (weights * (moved * own).sum(axis=1) * trusts * (1 - trusts)) @ is_kind,
        ]
        away = (point - prior) / deviations
        loss = float((away**2).sum() / 2 - weights @ (second - first))
        return loss, away / deviations - slopes

    found = minimize(find_loss, prior, jac=True, method="L-BFGS-B").x
    return replace(
        start,
        coefficients=tuple(found[:n].tolist()),
        spreads=tuple(np.exp(found[n : n + 2]).tolist()),
        trusts=tuple(expit(found[n + 2 :]).tolist()),
    )


def _normalise(logs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Compute the log-sum-exp of each row, and the softmax of each row."""
    highest = logs.max(axis=1, keepdims=True)
    shares = np.exp(logs - highest)
    sums = shares.sum(axis=1, keepdims=True)
    return (highest + np.log(sums))[:, 0], shares / sums
