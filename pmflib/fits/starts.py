"""Starting values for EM from counts: by method, by merging states, or with a state per level of a target.

EM from few random states often ends where one state covers two groups of samples and two other states share one. With
twice as many states, almost every group has its own, and states that share a group become alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, Parameters, normalise_blocks
from pmflib.base.blocks import DenseBlock
from pmflib.base.display.progress import working
from pmflib.base.errors import PmfError
from pmflib.base.pseudo_counts import PseudoCounts
from pmflib.counts.folds import DEFAULT_FOLDS
from pmflib.counts.marginals import (
    count_block_levels,
    estimate_block_singles,
    normalise_singles,
)
from pmflib.counts.pair_counts import PairCounts, count_block, load_singles
from pmflib.counts.selection import PAIR_LEVELS, list_levels, narrow_block, pick_variables
from pmflib.counts.zarr_tables import StoredTables
from pmflib.em.block_source import BlockSource
from pmflib.em.checkpoint import digest_fit
from pmflib.em.latent_classes import evaluate_models
from pmflib.em.stored_samples import StoredSamples
from pmflib.fits.pair_fits import fit_by_method
from pmflib.model import JointPMF
from pmflib.model.origin import ModelOrigin
from pmflib.model.sufficient_statistics import m_step
from pmflib.papers.pair_matrix import open_start, start_random
from pmflib.schema import Schema
from pmflib.store.file_digests import name_content

WIDENED = 2
"""Multiple of the requested number of states from which a start by merging begins."""

FIRST_PASSES = 5
"""Number of passes before the first states are merged: states must differ before similar ones can be recognised."""

MERGE_PASSES = 10
"""Maximum number of passes with merges; with many states, several pairs are merged in each."""


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
        Models with `WIDENED` times the requested number of states, at least one: priors and factors.
    offsets
        int64 of shape (n_variables + 1,).
    pseudo_counts
        Pseudo-counts.
    first_passes
        Number of passes before the first states are merged.
    merge_passes
        Maximum number of passes with merges.

    Returns
    -------
    Models of the requested rank.

    References
    ----------
    Figueiredo, Jain (2002), "Unsupervised learning of finite mixture models", for EM that begins with too many states;
    Ward (1963) for the loss from merging two groups.
    """
    models = list(wide)
    rank = models[0][0].size // WIDENED
    passes_left = merge_passes
    for _ in range(first_passes):
        models = _pass(samples, models, offsets, pseudo_counts)
    while (excess := models[0][0].size - rank) > 0:
        models = _pass(samples, models, offsets, pseudo_counts)
        # the pairs merged in one pass are disjoint
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
    """Perform an EM pass with each model."""
    found = evaluate_models(samples, models)
    return [
        m_step(statistics, offsets, pseudo_counts, *model)
        for statistics, model in zip(found, models, strict=True)
    ]


def _merge(prior: FloatArray, factors: FloatArray, n_pairs: int) -> Parameters:
    """Merge the pairs of states with the smallest loss."""
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
        Shapes (rank,) and (n_levels, rank); not modified.
    first, second
        Indices of the states.

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
    """Estimate the loss in complete-data log-likelihood from merging two states.

    Parameters
    ----------
    prior
        Shape (rank,).
    factors
        Shape (n_levels, rank).

    Returns
    -------
    float64 of shape (rank, rank), symmetric with an infinite diagonal, proportional to nats: the harmonic mean of the
    two shares times the squared Hellinger distances of the PMFs, which approximate the divergences between similar
    PMFs.
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
"""Pseudo-count per variable and level of the target, distributed like the variable's own PMF."""


def make_naive_bayes_of(counts: PairCounts | StoredCounts, schema: Schema, target: int) -> JointPMF:
    """Apply `read_naive_bayes` to counts, stored or not; variables without counts of pairs do not depend on the target.

    Raises
    ------
    PmfError
        If the pairs of the target are not counted.
    """
    if isinstance(counts, PairCounts):
        return read_naive_bayes(counts.to_samples(), target)
    own, name = counts.load(), schema[target].name
    if name not in own.schema:
        raise PmfError(
            f"the pairs of the target {name!r} are not counted; name it in counts.variables of the pipeline"
        )
    return extend_model(read_naive_bayes(own, own.schema.position(name)), counts, schema)


def read_naive_bayes(counts: PairCounts, target: int) -> JointPMF:
    """Fit naive Bayes from the pairs of the target with the other variables.

    Parameters
    ----------
    counts
        Co-occurrence counts of the training samples, of any number of folds.
    target
        Position of the target.

    Returns
    -------
    A joint PMF with one latent state per level of the target, which the state determines. Its conditional PMFs are the
    shares among samples in which both variables are observed, with `PSEUDO_COUNT`; missing cells are ignored.

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
    """Fit naive Bayes from a table of the target's pairs.

    Parameters
    ----------
    pairs
        int64 of shape (n_levels, cardinality): number of samples with each level, by level of the target.
    singles
        float64 of shape (n_levels,), PMF of each variable.
    schema
        Variables.
    target
        Position of the target.
    """
    own, offsets = schema.rows_of(target), schema.offsets
    # by level: the PMF of each variable sums to 1, so each state gets the same total
    mass = pairs + PSEUDO_COUNT * singles[:, None]
    factors = normalise_blocks(mass, offsets, singles[:, None])
    factors[own] = np.eye(own.stop - own.start)
    return JointPMF(singles[own], factors, schema, ModelOrigin(method="naive Bayes"))


OTHER_LEVELS = 0.01
"""Initial probability that a sample in a state has a different level of the target than the state's own."""


def start_classes(bayes: JointPMF, target: int, rank: int, rng: np.random.Generator) -> Parameters:
    """Start from naive Bayes, with the state of each level split into several by noise.

    Parameters
    ----------
    bayes
        Naive Bayes of the training samples, from `read_naive_bayes` or `make_naive_bayes`.
    target
        Position of the target.
    rank
        Number of latent states, at least the target's cardinality.
    rng
        Random generator for the noise, uniform on [0.5, 1.5]; a level with a single state has none.

    Returns
    -------
    Prior (rank,) and factors (n_levels, rank), positive; the levels of every variable sum to 1 in each column.
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
        int64 of shape (cardinality,): the levels; those listed first get one more state if the numbers are unequal.
    rank
        Number of states.
    """
    return np.sort(levels[np.arange(rank) % levels.size])


MOST_LEVELS = 4096
"""Number of levels up to which all pairs of samples in memory are counted: 2 GiB in 16 folds."""


def extend_factors(factors: FloatArray, singles: FloatArray, levels: IntArray | None) -> FloatArray:
    """Extend the factors of the variables whose pairs are counted to all variables.

    The others have their own PMF in every state, which leaves the posterior to the counted ones: the first pass of EM
    then updates them given the factors of these.

    Parameters
    ----------
    factors
        Shape (n_counted_levels, rank).
    singles
        float64 of shape (n_levels,), PMF of each variable.
    levels
        int64 of shape (n_counted_levels,): their positions; None if all are counted, and the factors are unchanged.
    """
    if levels is None:
        return factors
    extended = np.repeat(singles[:, None], factors.shape[1], axis=1)
    extended[levels] = factors
    return extended


@dataclass(frozen=True)
class StoredCounts:
    """Co-occurrence counts in a store; pairs are read only if a start needs them.

    Parameters
    ----------
    path
        Folder written by `PairCounts.save`.
    folds
        Folds of the training samples; None for all.
    """

    path: Path
    folds: tuple[int, ...] | None = None

    def load(self) -> PairCounts:
        """Load the counts, summed over folds, in samples; of the variables whose pairs are counted."""
        return PairCounts.load_total(self.path, folds=self.folds).to_samples()

    def find_counted(self) -> IntArray | None:
        """Return the levels whose pairs are counted, int64; None for all."""
        stored = StoredTables(self.path)
        return None if stored.is_complete else list_levels(stored.schema, stored.counted)

    def estimate_singles(self, offsets: IntArray) -> FloatArray:
        """Estimate the PMF of each variable as `normalise_singles` does."""
        return normalise_singles(load_singles(self.path, folds=self.folds), offsets)


def extend_model(model: JointPMF, counts: StoredCounts, schema: Schema) -> JointPMF:
    """Extend a model of the variables whose pairs are counted to all variables, as `extend_factors` does."""
    if (levels := counts.find_counted()) is None:
        return model
    factors = extend_factors(model.factors, counts.estimate_singles(schema.offsets), levels)
    return JointPMF(model.prior, factors, schema, model.origin)


@dataclass(frozen=True, eq=False)
class SampleCounts:
    """Co-occurrence counts of samples in memory, counted only if a start needs them.

    A table of pairs grows with the square of the number of levels, whatever the number of samples: above `MOST_LEVELS`
    levels, the pairs of the most answered variables are counted.

    Parameters
    ----------
    samples
        Valid samples.
    schema
        Variables.
    n_folds
        Number of folds for the rows.
    """

    samples: DenseBlock
    schema: Schema
    n_folds: int = DEFAULT_FOLDS

    def load(self) -> PairCounts:
        """Return the counts of pairs; see `extend_factors` where they are of some variables."""
        return self._counts

    def find_counted(self) -> IntArray | None:
        """Return the levels whose pairs are counted, int64; None for all."""
        return None if self._kept is None else list_levels(self.schema, self._kept)

    def estimate_singles(self, offsets: IntArray) -> FloatArray:
        """Estimate the PMF of each variable as `normalise_singles` does."""
        return estimate_block_singles(self.samples, offsets)

    def read_naive_bayes(self, target: int) -> JointPMF:
        """Apply `read_naive_bayes`, counting only the pairs of the target with other variables."""
        offsets, own = self.schema.offsets, self.samples.codes[:, target]
        levels = range(self.schema[target].cardinality)
        pairs = [count_block_levels(self.samples[own == level], offsets) for level in levels]
        singles = self.estimate_singles(offsets)
        return make_naive_bayes(np.stack(pairs, axis=1), singles, self.schema, target)

    @cached_property
    def _kept(self) -> IntArray | None:
        if self.schema.n_levels <= MOST_LEVELS:
            return None
        seen: IntArray = np.rint(count_block_levels(self.samples, self.schema.offsets)).astype(
            np.int64
        )
        return pick_variables(self.schema, seen, PAIR_LEVELS)

    @cached_property
    def _counts(self) -> PairCounts:
        if self._kept is None:
            return count_block(self.samples, self.schema, self.n_folds)
        own = narrow_block(self.samples, self.schema.offsets, self._kept)
        assert isinstance(own, DenseBlock)
        return count_block(own, self.schema.select(self._kept), self.n_folds)


AnyCounts: TypeAlias = PairCounts | StoredCounts | SampleCounts
"""Co-occurrence counts for making starts, already loaded or not."""


class PreparedStart(NamedTuple):
    """Precomputed parts of the start of a fit to stored samples.

    Parameters
    ----------
    method
        Start method, as for `pmflib.fit_em`.
    counts
        Co-occurrence counts of the samples; None counts them.
    model
        Model fitted to the counts by `pmflib.fit` with the first method. Its zeros are removed, and it is compared with
        other starts. With rank "auto", a model whose rank was chosen.
    """

    method: str = "auto"
    counts: PairCounts | StoredCounts | None = None
    model: JointPMF | None = None


def load_counts(
    samples: StoredSamples, counts: PairCounts | StoredCounts | None
) -> PairCounts | StoredCounts:
    """Return the given co-occurrence counts, or those of the samples."""
    found = samples.count_pairs() if counts is None else counts
    return found.to_samples() if isinstance(found, PairCounts) else found


class Starts:
    """Starts by method: fits to the counts, mixed with the marginals so that EM can reach any model.

    "wide" is a random start with `WIDENED` times as many states, for `merge_alike_states`.

    Parameters
    ----------
    counts
        Co-occurrence counts of the training samples, loaded or counted only if a start needs them, because they may be
        large.
    singles
        float64 of shape (n_levels,), PMF of each variable.
    offsets
        int64 of shape (n_variables + 1,).
    rank
        Number of latent states.
    seed
        Seed of all starts; the k-th start of a method has its own random stream.
    made
        Precomputed starting values by method: the first of each.
    methods
        Methods behind them, if these differ from the start methods: "auto" has chosen another method.
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
        """Return the first starts of a method; deterministic methods give equal ones."""
        return [self._find(method, k) for k in range(number)]

    def make_classes(self, target: int, schema: Schema) -> Parameters:
        """Return the start for a target of the variables, from `start_classes`."""
        rng = np.random.default_rng([self.seed, 0])
        if isinstance(self._counts, SampleCounts):
            bayes = self._counts.read_naive_bayes(target)
        else:
            bayes = make_naive_bayes_of(self._counts, schema, target)
        return start_classes(bayes, target, self.rank, rng)

    def name_methods(self, methods: Iterable[str]) -> str:
        """Join names of start methods by slashes; "auto" is replaced by the method it chose."""
        return "/".join(dict.fromkeys(self._methods.get(method, method) for method in methods))

    def digest(self) -> str:
        """Compute the SHA-256 digest of the counts from which starts are made, in hexadecimal."""
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
        counts = self._counts
        levels = None if isinstance(counts, PairCounts) else counts.find_counted()
        model = found.model.prior, extend_factors(found.model.factors, self.singles, levels)
        return model if found.method == "random" else open_for_em(model, self.singles)


def digest_counts(counts: AnyCounts) -> str:
    """Compute the SHA-256 digest of counts in hexadecimal; stored counts are identified by their address."""
    if isinstance(counts, StoredCounts):
        return digest_fit(name_content(counts.path), counts.folds)
    if isinstance(counts, SampleCounts):
        weights = () if counts.samples.weights is None else (counts.samples.weights,)
        return digest_fit(counts.samples.codes, counts.n_folds, *weights)
    return digest_fit(counts.n_rows, counts.tables)


def open_for_em(model: Parameters, singles: FloatArray) -> Parameters:
    """Mix a fit to the marginals with the variables' PMFs, so that EM can leave its zeros.

    A fit to sampled marginals has many zeros, which EM never leaves. One tenth of the prior is distributed over all
    states, and one percent of every conditional PMF is replaced by the variable's own PMF.

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
