"""Starts of EM from counts: by method, by merging states, or with a state per level of a target.

EM from few random states often ends where one of them covers two groups of samples, and two others share one. With
twice as many states hardly a group is left without its own, and those that share one become alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray, Parameters, normalise_blocks
from pmflib.core.blocks import DenseBlock
from pmflib.counting.folds import DEFAULT_FOLDS
from pmflib.counting.marginals import (
    count_block_levels,
    estimate_block_singles,
    normalise_singles,
)
from pmflib.counting.pair_counts import PairCounts, count_block, load_singles
from pmflib.display.progress import working
from pmflib.em.block_source import BlockSource
from pmflib.em.checkpoint import digest_fit
from pmflib.em.latent_classes import evaluate_models
from pmflib.em.stored_samples import StoredSamples
from pmflib.fitting.pair_fits import fit_by_method
from pmflib.model import JointPMF
from pmflib.model.statistics import m_step
from pmflib.schema import Schema
from pmflib.solvers import PseudoCounts
from pmflib.solvers.pairs.pair_matrix import open_start, start_random
from pmflib.store.file_digests import name_content

WIDENED = 2
"""Times as many states as are requested that a start begins with."""

FIRST_PASSES = 5
"""Passes before the first states are made one: states have to differ before it shows which are alike."""

MERGE_PASSES = 10
"""Passes in which states are made one, at most: of many states several pairs in each."""


def merge_alike_states(
    samples: BlockSource,
    wide: Sequence[Parameters],
    offsets: IntArray,
    pseudo_counts: PseudoCounts,
    *,
    first_passes: int = FIRST_PASSES,
    merge_passes: int = MERGE_PASSES,
) -> list[Parameters]:
    """Make passes of EM, merging the most similar states until the requested number is left.

    Parameters
    ----------
    samples
        Training samples.
    wide
        Models of `WIDENED` times as many states as are requested, at least one: priors and factors.
    offsets
        int64 of shape (n_variables + 1,).
    pseudo_counts
        Pseudo-counts.
    first_passes
        Passes before the first states are made one.
    merge_passes
        Passes in which states are made one, at most.

    Returns
    -------
    Models of the rank that is requested.

    References
    ----------
    Figueiredo, Jain (2002), "Unsupervised learning of finite mixture models", for EM that begins with too many states;
    Ward (1963) for what is lost when two groups are made one.
    """
    models = list(wide)
    rank = models[0][0].size // WIDENED
    passes_left = merge_passes
    for _ in range(first_passes):
        models = _pass(samples, models, offsets, pseudo_counts)
    while (excess := models[0][0].size - rank) > 0:
        models = _pass(samples, models, offsets, pseudo_counts)
        # pairs of one pass have no state in common
        n_pairs = min(-(-excess // max(passes_left, 1)), models[0][0].size // 2)
        models = [_merge(*model, n_pairs) for model in models]
        passes_left -= 1
    return models


def _pass(
    samples: BlockSource,
    models: Sequence[Parameters],
    offsets: IntArray,
    pseudo_counts: PseudoCounts,
) -> list[Parameters]:
    """Make a pass of EM with each model."""
    found = evaluate_models(samples, models)
    return [
        m_step(statistics, offsets, pseudo_counts, *model)
        for statistics, model in zip(found, models, strict=True)
    ]


def _merge(prior: FloatArray, factors: FloatArray, n_pairs: int) -> Parameters:
    """Merge the pairs of states that lose least by it."""
    losses = find_losses(prior, factors)
    kept = np.ones(prior.size, bool)
    for _ in range(n_pairs):
        first, second = np.unravel_index(np.argmin(losses), losses.shape)
        prior, factors = merge_states(prior, factors, int(first), int(second))
        kept[second] = False
        for state in (first, second):
            losses[state], losses[:, state] = np.inf, np.inf
    return prior[kept], np.ascontiguousarray(factors[:, kept])


def merge_states(prior: FloatArray, factors: FloatArray, first: int, second: int) -> Parameters:
    """Merge two states into the first; the second keeps its factors with probability 0.

    Parameters
    ----------
    prior, factors
        Shapes (rank,) and (n_levels, rank); they are not changed.
    first, second
        Places of the states.

    Returns
    -------
    Prior and factors of the same shapes.
    """
    prior, factors = prior.copy(), factors.copy()
    total = prior[first] + prior[second]
    share = prior[first] / total if total > 0 else 0.5
    factors[:, first] = share * factors[:, first] + (1 - share) * factors[:, second]
    prior[first], prior[second] = total, 0.0
    return prior, factors


def find_losses(prior: FloatArray, factors: FloatArray) -> FloatArray:
    """Estimate the complete-data log-likelihood that is lost by merging two states.

    Parameters
    ----------
    prior
        Shape (rank,).
    factors
        Shape (n_levels, rank).

    Returns
    -------
    float64 of shape (rank, rank), symmetric with an infinite diagonal, in proportion to nats: the harmonic mean of the
    two shares times the squared Hellinger distances of the PMFs, which stand for the divergences of those close to each
    other.
    """
    roots = np.sqrt(factors)
    products = roots.T @ roots
    squares = np.diagonal(products)
    distances = np.maximum(squares[:, None] + squares - 2 * products, 0.0)
    totals = prior[:, None] + prior
    shares = np.divide(prior[:, None] * prior, totals, out=np.zeros_like(totals), where=totals > 0)
    losses: FloatArray = shares * distances
    np.fill_diagonal(losses, np.inf)
    return losses


PSEUDO_COUNT = 1.0
"""Pseudo-counts of a variable per level of the target, shared out by the variable's own PMF."""


def read_naive_bayes(counts: PairCounts, target: int) -> JointPMF:
    """Fit naive Bayes from the pairs of the target with the other variables.

    Parameters
    ----------
    counts
        Co-occurrence counts of the training samples, of any number of folds.
    target
        Place of the target.

    Returns
    -------
    A joint PMF with a latent state for each level of the target, which the state determines. Its conditional PMFs are
    the shares among the samples where both variables are observed, with `PSEUDO_COUNT`; missing cells say nothing.

    References
    ----------
    Hand, Yu (2001), "Idiot's Bayes: not so stupid after all?".
    """
    own = counts.schema.rows_of(target)
    upper = counts.tables.sum(axis=0)
    # pairs are counted once, above the diagonal
    pairs = (upper[own] + upper[:, own].T).T
    singles = normalise_singles(np.diagonal(upper), counts.schema.offsets)
    return make_naive_bayes(pairs, singles, counts.schema, target)


def make_naive_bayes(pairs: IntArray, singles: FloatArray, schema: Schema, target: int) -> JointPMF:
    """Fit naive Bayes from the pairs of the target, given as a table.

    Parameters
    ----------
    pairs
        int64 of shape (n_levels, cardinality): samples that hold each level, by the level of the target.
    singles
        float64 of shape (n_levels,), PMF of each variable.
    schema
        Variables.
    target
        Place of the target.
    """
    own, offsets = schema.rows_of(target), schema.offsets
    # by level: within a variable the PMF sums to 1, so that each state gets so many in all
    mass = pairs + PSEUDO_COUNT * singles[:, None]
    factors = normalise_blocks(mass, offsets, singles[:, None])
    factors[own] = np.eye(own.stop - own.start)
    return JointPMF(singles[own], factors, schema, {"method": "naive Bayes"})


OTHER_LEVELS = 0.01
"""Probability, at the start, that a sample in a state has another level of the target than the state's own."""


def start_classes(bayes: JointPMF, target: int, rank: int, rng: np.random.Generator) -> Parameters:
    """Start from naive Bayes, with the state of each level split into several by noise.

    Parameters
    ----------
    bayes
        Naive Bayes of the training samples, from `read_naive_bayes` or `make_naive_bayes`.
    target
        Place of the target.
    rank
        Number of latent states, at least the target's cardinality.
    rng
        Source of the noise, uniform on [0.5, 1.5]; a level with a single state has none.

    Returns
    -------
    Prior (rank,) and factors (n_levels, rank), positive; every variable's rows sum to 1 per column.
    """
    schema, offsets = bayes.schema, bayes.schema.offsets
    owners = assign_states(bayes.prior.argsort(kind="stable")[::-1], rank)
    shares = np.bincount(owners, minlength=bayes.rank)[owners]
    factors = bayes.factors[:, owners]
    noise = np.where(shares > 1, rng.uniform(0.5, 1.5, factors.shape), 1.0)
    factors = normalise_blocks(factors * noise, offsets, factors)
    own = schema.rows_of(target)
    n_levels = own.stop - own.start
    factors[own] = OTHER_LEVELS / n_levels
    factors[own.start + owners, np.arange(rank)] += 1 - OTHER_LEVELS
    return bayes.prior[owners] / shares, factors


def assign_states(levels: IntArray, rank: int) -> IntArray:
    """Assign states to levels of the target in turn: sorted levels, int64 of shape (rank,).

    Parameters
    ----------
    levels
        int64 of shape (cardinality,): the levels, those that get one state more first.
    rank
        Number of states.
    """
    return np.sort(levels[np.arange(rank) % levels.size])


@dataclass(frozen=True)
class StoredCounts:
    """Co-occurrence counts in a store; pairs are read only when a start needs them.

    Parameters
    ----------
    path
        Folder that `PairCounts.save` wrote.
    folds
        Folds of the training samples; None is all.
    """

    path: Path
    folds: tuple[int, ...] | None = None

    def load(self) -> PairCounts:
        """Read the counts, summed over the folds, in samples."""
        return PairCounts.load_total(self.path, folds=self.folds).to_samples()

    def estimate_singles(self, offsets: IntArray) -> FloatArray:
        """PMF of each variable alone, as `normalise_singles` gives it."""
        return normalise_singles(load_singles(self.path, folds=self.folds), offsets)


@dataclass(frozen=True, eq=False)
class SampleCounts:
    """Co-occurrence counts of samples in memory, counted when a start first needs them.

    A table of pairs grows with the square of the levels, whatever the samples are.

    Parameters
    ----------
    samples
        Valid samples.
    schema
        Variables.
    n_folds
        Folds that rows are assigned to.
    """

    samples: DenseBlock
    schema: Schema
    n_folds: int = DEFAULT_FOLDS

    def load(self) -> PairCounts:
        """The counts of all pairs."""
        return self._counts

    def estimate_singles(self, offsets: IntArray) -> FloatArray:
        """PMF of each variable alone, as `normalise_singles` gives it."""
        return estimate_block_singles(self.samples, offsets)

    def read_naive_bayes(self, target: int) -> JointPMF:
        """Do `read_naive_bayes`, of which the pairs of the target with the others are counted alone."""
        offsets, own = self.schema.offsets, self.samples.codes[:, target]
        levels = range(self.schema[target].cardinality)
        pairs = [count_block_levels(self.samples[own == level], offsets) for level in levels]
        singles = self.estimate_singles(offsets)
        return make_naive_bayes(np.stack(pairs, axis=1), singles, self.schema, target)

    @cached_property
    def _counts(self) -> PairCounts:
        return count_block(self.samples, self.schema, self.n_folds)


AnyCounts: TypeAlias = PairCounts | StoredCounts | SampleCounts
"""Co-occurrence counts that starts are made from, at hand or not."""


class PreparedStart(NamedTuple):
    """A start of a fit of stored samples that was partly made before.

    Parameters
    ----------
    method
        Start method, as for `pmflib.fit_em`.
    counts
        Co-occurrence counts of the samples; None counts them.
    model
        A model that `pmflib.fit` has made of the counts by the first method. What it rules out is opened, and it is
        compared with other starts. With rank "auto" it is one whose rank was chosen.
    """

    method: str = "auto"
    counts: PairCounts | StoredCounts | None = None
    model: JointPMF | None = None


def load_counts(
    samples: StoredSamples, counts: PairCounts | StoredCounts | None
) -> PairCounts | StoredCounts:
    """The given co-occurrence counts, or those of the samples."""
    found = samples.count_pairs() if counts is None else counts
    return found.to_samples() if isinstance(found, PairCounts) else found


class Starts:
    """Starts by method: fits of the counts, mixed with the marginals so that EM can reach any model.

    "wide" is a random start with `WIDENED` times as many states, for `merge_alike_states`.

    Parameters
    ----------
    counts
        Co-occurrence counts of the training samples; they are read, or counted, when a start needs them, for they may
        be large.
    singles
        float64 of shape (n_levels,), PMF of each variable.
    offsets
        int64 of shape (n_variables + 1,).
    rank
        Number of latent states.
    seed
        Seed of all starts; the k-th of a method has its own stream of random numbers.
    made
        Starts that were made before, by method: the first of each.
    methods
        Names of what made them, where these are not the start methods' own: "auto" has chosen another method.
    has_pairs
        Whether a search may start from the table of pairs.
    """

    def __init__(
        self,
        counts: AnyCounts,
        singles: FloatArray,
        offsets: IntArray,
        rank: int,
        seed: int,
        made: Mapping[str, Parameters] | None = None,
        methods: Mapping[str, str] | None = None,
        *,
        has_pairs: bool = True,
    ) -> None:
        self.singles, self.has_pairs = singles, has_pairs
        self.notes: tuple[str, ...] = ()
        self._methods = dict(methods or {})
        self._counts = counts
        self._load_counts = cache(
            (lambda: counts) if isinstance(counts, PairCounts) else counts.load
        )
        self._offsets, self.rank, self.seed = offsets, rank, seed
        self._made = {(method, 0): model for method, model in (made or {}).items()}

    def __call__(self, method: str, number: int) -> list[Parameters]:
        """Return the first starts of a method; a method without randomness gives equal ones."""
        return [self._find(method, k) for k in range(number)]

    def make_classes(self, target: int) -> Parameters:
        """Return the start for a target, as `start_classes` makes it."""
        rng = np.random.default_rng([self.seed, 0])
        if isinstance(self._counts, SampleCounts):
            bayes = self._counts.read_naive_bayes(target)
        else:
            bayes = read_naive_bayes(self._load_counts(), target)
        return start_classes(bayes, target, self.rank, rng)

    def name_methods(self, methods: Iterable[str]) -> str:
        """Names of start methods, joined by slashes: "auto" is named as the method that it has chosen."""
        return "/".join(dict.fromkeys(self._methods.get(method, method) for method in methods))

    def digest(self) -> str:
        """SHA-256 of the counts that starts are made from, in hexadecimal."""
        return digest_counts(self._counts)

    def _find(self, method: str, k: int) -> Parameters:
        if (method, k) not in self._made:
            generator = np.random.default_rng([self.seed, k])
            self._made[method, k] = self._make(method, generator)
        return self._made[method, k]

    def _make(self, method: str, rng: np.random.Generator) -> Parameters:
        if method in ("random", "wide"):
            rank = self.rank * (WIDENED if method == "wide" else 1)
            return start_random(self.singles, self._offsets, rank=rank, rng=rng)
        with working("fit"):
            found = fit_by_method(self._load_counts(), self.rank, method, rng)
        self.notes += tuple(note for note in found.notes if note not in self.notes)
        self._methods[method] = found.method
        model = found.model.prior, found.model.factors
        return model if found.method == "random" else open_for_em(model, self.singles)


def digest_counts(counts: AnyCounts) -> str:
    """SHA-256 of counts in hexadecimal; stored counts are identified by their address."""
    if isinstance(counts, StoredCounts):
        return digest_fit(name_content(counts.path), counts.folds)
    if isinstance(counts, SampleCounts):
        weights = () if counts.samples.weights is None else (counts.samples.weights,)
        return digest_fit(counts.samples.codes, counts.n_folds, *weights)
    return digest_fit(counts.n_rows, counts.tables)


def open_for_em(model: Parameters, singles: FloatArray) -> Parameters:
    """Mix a fit of the marginals with the variables' PMFs, so that EM rules nothing out.

    A fit of sampled marginals has many zeros, which EM never leaves: a tenth of the prior is spread over all states,
    and a hundredth of every conditional PMF is the variable's own.

    Parameters
    ----------
    model
        Prior (rank,) and factors (n_levels, rank).
    singles
        float64 of shape (n_levels,), PMF of each variable.

    Returns
    -------
    Prior and factors of the same shapes, positive.
    """
    return open_start(model, singles[:, None], prior_share=0.1, factor_share=0.01)
