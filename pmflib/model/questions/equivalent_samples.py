"""What a model is worth beside counts: the equivalent sample size of the Dirichlet prior that it is for an answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.errors import PmfError
from pmflib.counting.conditional_tables import TableRequest
from pmflib.model.conditions import Conditions
from pmflib.model.mixture import Mixture

ASSUMED_LOG = 4.5
"""Logarithm of the equivalent sample size that is assumed before any unseen row is read: 90 rows."""
LOG_SPREAD = 1.5
"""Standard deviation of the prior of that logarithm, by number of variables: from 4 to 1,800 rows within two."""
COEFFICIENT_SPREAD = 0.7
"""Standard deviation of the prior of the coefficients of standardised features."""
LEAST_LOG = -3.0
"""Logarithm of the least equivalent sample size: a twentieth of a row."""
MOST_TIMES = 10.0
"""The largest equivalent sample size, in rows that the model was fitted to: a model that is exact."""
MOST_CELLS = 1 << 13
"""Cells of the largest table of two variables that is compared: 1,600 questions hold thousands of these tables."""
MOST_VARIABLES = 4
"""Numbers of variables of a question, targets and conditions, from which on they are alike."""
N_QUESTIONS = 400
"""Questions drawn for each number of variables."""
LEAST_CHANCE = 1e-9
"""Probability below which that of a level is not taken to be."""

CountTables = Callable[[Sequence[TableRequest]], Sequence[IntArray]]
"""Counts the tables of some requests among some samples: int64, of the cardinalities of their targets."""


@dataclass(frozen=True)
class EquivalentSamples:
    """How many rows a model counts for beside n rows that were counted: the prior of an answer is Dirichlet(m p).

    log m is linear in three features of a question (see `find_features`) and in the number of its variables.

    Parameters
    ----------
    intercepts
        log m of a question of 1, 2, 3, and 4 variables or more, targets and conditions, whose features are average.
    coefficients, means, scales
        What the features do: the change of log m by a standard deviation, their means, and their standard deviations.
    alone
        log m by number of variables where nothing was counted: what the bias of the model is like.
    largest
        The largest m, rows.
    n_questions, n_unseen
        Questions, and unseen rows, that this was learnt from; 0 where it is assumed.
    """

    intercepts: tuple[float, ...] = (ASSUMED_LOG,) * MOST_VARIABLES
    coefficients: tuple[float, ...] = (0.0, 0.0, 0.0)
    means: tuple[float, ...] = (0.0, 0.0, 0.0)
    scales: tuple[float, ...] = (1.0, 1.0, 1.0)
    alone: tuple[float, ...] = (ASSUMED_LOG,) * MOST_VARIABLES
    largest: float = math.inf
    n_questions: int = 0
    n_unseen: int = 0

    @property
    def n_fitted(self) -> float:
        """Rows that the model was fitted to; infinite where that is not known."""
        return self.largest / MOST_TIMES

    def weigh(self, n_variables: int, features: FloatArray | None) -> float:
        """Equivalent sample size of the model for a question.

        Parameters
        ----------
        n_variables
            Variables of the question, targets and conditions, at least 1.
        features
            float64 of shape (3,), as from `find_features`; None where nothing was counted.

        Returns
        -------
        Rows, above 0.
        """
        n = min(n_variables, MOST_VARIABLES) - 1
        if features is None:
            found = self.alone[n]
        else:
            moved = (features - np.array(self.means)) / np.array(self.scales)
            found = self.intercepts[n] + float(np.array(self.coefficients) @ moved)
        return float(min(math.exp(max(found, LEAST_LOG)), self.largest))

    def __str__(self) -> str:
        """One line for a person."""
        if not self.n_questions:
            return (
                f"{math.exp(ASSUMED_LOG):.0f} rows, assumed: no rows were held out to learn it from"
            )
        rows = [f"{math.exp(each):,.0f}" for each in self.intercepts]
        return (
            f"{', '.join(rows[:-1])} and {rows[-1]} rows for 1, 2, 3, and {MOST_VARIABLES} variables or more on "
            f"average (learnt from {self.n_questions:,} questions to {self.n_unseen:,} unseen rows)"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; ``largest`` is null where there is no limit."""
        out = {name: list(x) if isinstance(x, tuple) else x for name, x in asdict(self).items()}
        return out | {"largest": self.largest if math.isfinite(self.largest) else None}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> EquivalentSamples:
        """Read what `to_json` gave."""
        read: dict[str, Any] = {
            name: tuple(x) if isinstance(x, list) else x for name, x in content.items()
        }
        return cls(**read | {"largest": math.inf if read["largest"] is None else read["largest"]})


NAME = "equivalent_samples"
"""Key of the origin of a model under which it is kept."""


def find_equivalent_samples(origin: Mapping[str, Any]) -> EquivalentSamples:
    """Equivalent sample sizes of a model by its origin: those that were learnt, or what is assumed."""
    found = origin.get(NAME)
    return EquivalentSamples() if found is None else EquivalentSamples.from_json(found)


@dataclass(frozen=True)
class PairTable:
    """Counts and probabilities of a target and a condition.

    Parameters
    ----------
    counts
        int64 of shape (n_target, n_condition): samples that hold each combination of levels.
    chances
        float64 of the same shape: what the model says.
    codes
        Levels that are given of the second variable; empty where it is a target as well.
    """

    counts: IntArray
    chances: FloatArray
    codes: tuple[int, ...]


def find_features(counts: IntArray, chances: FloatArray, pairs: Sequence[PairTable]) -> FloatArray:
    """What counts say of how good a model is for the variables of a question.

    Parameters
    ----------
    counts
        int64 of shape (n_cells,): samples that meet the conditions, by combination of levels of the targets.
    chances
        float64 of the same shape: what the model says, sums to 1.
    pairs
        A table of each target with each condition; without conditions those of each two targets.

    Returns
    -------
    float64 of shape (3,): log m as the departure of counts from the model implies it, for the answer itself; for the
    targets given each condition, on average; and for these pairs over all levels, on average. Where D is the
    Kullback-Leibler divergence of n counted shares from the model, of d degrees of freedom, D is d / 2m + d / 2n on
    average under a Dirichlet with m rows, so that m is d / 2 (D - d / 2n), and the noise d / 2n is what it cannot see.
    """
    own = _imply(counts.reshape(-1, 1), chances.reshape(-1, 1))
    levels, wholes = [], []
    for pair in pairs:
        given = pair.chances / np.maximum(pair.chances.sum(axis=0), LEAST_CHANCE)
        wholes.append(_imply(pair.counts, given))
        if pair.codes:
            codes = list(pair.codes)
            chosen = pair.chances[:, codes].sum(axis=1)
            chosen = chosen / max(float(chosen.sum()), LEAST_CHANCE)
            levels.append(_imply(pair.counts[:, codes].sum(axis=1)[:, None], chosen[:, None]))
    return np.array(
        [own, np.mean(levels) if levels else own, np.mean(wholes) if wholes else own], np.float64
    )


def _imply(counts: IntArray, chances: FloatArray) -> float:
    """Logarithm of m as implied by counts of shape (n_levels, n_columns), whose columns are apart."""
    n = counts.sum(axis=0)
    total = max(int(n.sum()), 1)
    shares = counts / np.maximum(n, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(counts > 0, np.log(shares / np.maximum(chances, LEAST_CHANCE)), 0.0)
    departure = float((counts * terms).sum()) / total
    freedom = max(len(counts) - 1, 1)
    noise = freedom * max(int(np.count_nonzero(n)), 1) / (2 * total)
    return math.log(freedom / (2 * (max(departure - noise, 0.0) + noise)))


def describe_question(
    model: Mixture, request: TableRequest, counts: IntArray, find_pair: FindPair
) -> tuple[FloatArray, FloatArray]:
    """What a model says of a question, and features of it.

    Parameters
    ----------
    model
        The model.
    request
        Targets and conditions.
    counts
        int64 of the cardinalities of the targets: samples that meet the conditions.
    find_pair
        Gives counts and probabilities of two variables: (cardinality, cardinality).

    Returns
    -------
    Probabilities of shape (n_cells,), which sum to 1, and features as from `find_features`.

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
    chances = chances / chances.sum()
    return chances, find_features(counts.ravel(), chances, pairs)


FindPair = Callable[[int, int], tuple[IntArray, FloatArray]]
"""Gives the counts and the probabilities of two variables by position, (cardinality, cardinality) each."""


@dataclass(frozen=True, eq=False)
class _Asked:
    """A question, what the model says, features, and what was counted among the samples of the fit and unseen ones."""

    n_variables: int
    chances: FloatArray
    features: FloatArray
    seen: IntArray
    unseen: IntArray


def learn_equivalent_samples(
    model: Mixture,
    unseen: IntArray,
    count_seen: CountTables,
    count_unseen: CountTables,
    n_seen: int,
    seed: int = 0,
) -> EquivalentSamples:
    """Learn how many rows a model counts for, by random questions to samples that its fit has not seen.

    Parameters
    ----------
    model
        The model.
    unseen
        Codes of shape (n_rows, n_variables) of unseen samples: conditions are drawn from their rows, so that common
        ones and rare ones are met as often as users meet them.
    count_seen, count_unseen
        Count tables among the samples of the fit, or some of them, and among the unseen ones.
    n_seen
        Samples that the model was fitted to.
    seed
        Seed of the questions that are drawn.

    Returns
    -------
    What the posterior mode of a regression of log m says. Without unseen samples it is what is assumed.

    Notes
    -----
    The likelihood of a question is that of the unseen counts under a Dirichlet-multinomial whose parameters are
    m p + n q, p of the model, n q the counts of the samples of the fit. The priors of the coefficients are normal. The
    questions of each number of variables ask for each unseen value many times; their log-likelihoods are weighted so
    that together they ask for it once. Without that, chance in the unseen rows is taken for a model that is exact: on
    drawn data, intervals of 95 % held 60 % of the answers of a model of the true rank, and with it 92 %.

    References
    ----------
    Heckerman, Geiger and Chickering (1995), Learning Bayesian networks: equivalent sample size. Minka (2000),
    Estimating a Dirichlet distribution: the likelihood and its gradient.
    """
    sizes = model.schema.cardinalities
    requests = [
        each
        for each in draw_questions(unseen, seed)
        if len(each.targets) == 1 or is_comparable(sizes, *each.targets)
    ]
    pairs: dict[tuple[int, int], IntArray] = {}
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

    asked = []
    for request, counts, others in zip(
        requests, seen[: len(requests)], count_unseen(requests), strict=True
    ):
        if not others.any():
            continue
        try:
            chances, features = describe_question(model, request, counts, find_pair)
        except PmfError:
            # conditions that the model rules out are answered by counts
            continue
        n_variables = len(request.targets) + len(request.given)
        asked.append(_Asked(n_variables, chances, features, counts.ravel(), others.ravel()))
    if not asked:
        return EquivalentSamples()
    n_values = int(np.count_nonzero(unseen >= 0))
    return _regress(asked, MOST_TIMES * max(n_seen, 1), len(unseen), n_values)


def draw_questions(unseen: IntArray, seed: int) -> list[TableRequest]:
    """Draw questions whose conditions rows of some samples meet: of 1 to 4 variables, a quarter with two targets.

    Parameters
    ----------
    unseen
        Codes of shape (n_rows, n_variables), -1 missing.
    seed
        Seed of the draws.

    Returns
    -------
    Different requests, in an order that depends on the arguments alone.
    """
    rng = np.random.default_rng(seed)
    found: dict[TableRequest, None] = {}
    if not len(unseen):
        return []
    for n_variables in range(1, MOST_VARIABLES + 1):
        for n in range(N_QUESTIONS):
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
    """List the pairs of variables that features of a question are of.

    Parameters
    ----------
    targets
        Variables asked for.
    given
        Codes of those that are given.
    sizes
        int64 of shape (n_variables,): cardinalities.

    Returns
    -------
    Each target with each other variable that is given, and its codes; where nothing is given, each two targets, and no
    codes. Pairs whose tables are too large are left out.
    """
    found = [(target, *known) for target in targets for known in given.items()]
    if not given:
        found = [(first, second, ()) for first, second in combinations(targets, 2)]
    return [each for each in found if each[0] != each[1] and is_comparable(sizes, *each[:2])]


def is_comparable(sizes: IntArray, first: int, second: int) -> bool:
    """Whether the table of two variables is small enough to be compared."""
    return int(sizes[first]) * int(sizes[second]) <= MOST_CELLS


def _regress(
    asked: Sequence[_Asked], largest: float, n_unseen: int, n_values: int
) -> EquivalentSamples:
    features = np.array([each.features for each in asked])
    means = features.mean(axis=0)
    scales = np.maximum(features.std(axis=0), 1e-6)
    kinds = np.eye(MOST_VARIABLES)[[min(each.n_variables, MOST_VARIABLES) - 1 for each in asked]]
    design = np.hstack([kinds, (features - means) / scales])
    cells = _Cells.of(asked)
    limits = LEAST_LOG, math.log(largest)
    # hundreds of questions are about the same values, each of which is worth one
    n_used = cells.add_up(cells.unseen) @ kinds
    weights = kinds @ np.minimum(n_values / np.maximum(n_used, 1.0), 1.0)
    found = _maximise(design, cells, cells.seen, weights, limits)
    alone = _maximise(kinds, cells, np.zeros_like(cells.seen), weights, limits)
    return EquivalentSamples(
        tuple(found[:MOST_VARIABLES].tolist()),
        tuple(found[MOST_VARIABLES:].tolist()),
        tuple(means.tolist()),
        tuple(scales.tolist()),
        tuple(alone.tolist()),
        largest,
        len(asked),
        n_unseen,
    )


@dataclass(frozen=True, eq=False)
class _Cells:
    """Cells of all questions, one after the other, and where each question begins."""

    starts: IntArray
    owners: IntArray
    chances: FloatArray
    seen: FloatArray
    unseen: FloatArray

    @classmethod
    def of(cls, asked: Sequence[_Asked]) -> _Cells:
        sizes = [each.chances.size for each in asked]
        return cls(
            np.concatenate([[0], np.cumsum(sizes)[:-1]]),
            np.repeat(np.arange(len(asked)), sizes),
            np.concatenate([each.chances for each in asked]),
            np.concatenate([each.seen for each in asked]).astype(np.float64),
            np.concatenate([each.unseen for each in asked]).astype(np.float64),
        )

    def add_up(self, values: FloatArray) -> FloatArray:
        """Sums over the cells of each question."""
        sums: FloatArray = np.add.reduceat(values, self.starts)
        return sums


def _maximise(
    design: FloatArray,
    cells: _Cells,
    seen: FloatArray,
    weights: FloatArray,
    limits: tuple[float, float],
) -> FloatArray:
    """Posterior mode of the coefficients of log m, of questions with weights."""
    # they take longer to load than an answer, and a model that is asked has learnt
    from scipy.optimize import minimize
    from scipy.special import digamma, gammaln

    n_features = design.shape[1] - MOST_VARIABLES
    prior = np.r_[np.full(MOST_VARIABLES, ASSUMED_LOG), np.zeros(n_features)]
    spread = np.r_[np.full(MOST_VARIABLES, LOG_SPREAD), np.full(n_features, COEFFICIENT_SPREAD)]
    n_seen, n_unseen = cells.add_up(seen), cells.add_up(cells.unseen)

    def find_loss(coefficients: FloatArray) -> tuple[float, FloatArray]:
        logs = design @ coefficients
        inside = (logs > limits[0]) & (logs < limits[1])
        m = np.exp(np.clip(logs, *limits))
        alpha, total = m[cells.owners] * cells.chances + seen, m + n_seen
        gained = cells.add_up(gammaln(alpha + cells.unseen) - gammaln(alpha))
        likelihood = weights * (gammaln(total) - gammaln(total + n_unseen) + gained)
        slopes = cells.add_up((digamma(alpha + cells.unseen) - digamma(alpha)) * cells.chances)
        slopes = digamma(total) - digamma(total + n_unseen) + slopes
        slopes = weights * slopes * m * inside
        away = (coefficients - prior) / spread
        return float((away**2).sum() / 2 - likelihood.sum()), away / spread - slopes @ design

    found = minimize(find_loss, prior, jac=True, method="L-BFGS-B")
    return np.asarray(found.x, np.float64)
