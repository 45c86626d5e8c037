"""Likelihood ratio tests of F latent classes against F + 1, by the bootstrap and by the limit distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pmflib.base.arrays import (
    FLOOR,
    FloatArray,
    IntArray,
    Parameters,
    check_row_order,
    normalise_blocks,
)
from pmflib.base.blocks import DenseBlock, weigh_rows
from pmflib.base.constraints import at_least, check
from pmflib.base.display.progress import report_step, reports_progress
from pmflib.base.display.summary import Summarised, Summary, decimal, format_count
from pmflib.base.errors import PmfError
from pmflib.base.pseudo_counts import check_rank
from pmflib.base.variance import weigh_samples
from pmflib.em.block_source import BlocksInMemory
from pmflib.em.blocks import merge_duplicates
from pmflib.em.stored_samples import StoredSamples
from pmflib.fits.criteria import count_parameters, measure_fit
from pmflib.fits.em_fit import EMFit, Passes
from pmflib.fits.fit_specifications import Options
from pmflib.fits.fit_statistics import Criteria
from pmflib.information.latent_classes import ClassInformation
from pmflib.information.parameter_errors import MAX_ENTRIES
from pmflib.model import JointPMF
from pmflib.papers.pair_matrix import start_random
from pmflib.papers.squarem import descend
from pmflib.schema import Schema

SHORT_PASSES = 30
"""Number of passes for every start on a drawn table before only the best continue."""
N_SPLIT, N_RANDOM, N_FINISHED = 6, 6, 3
"""Numbers of starts of the larger model: with a state split in two, and random; and number of starts run to
convergence. On tables with two classes, twice as many of each increase statistics of 10 by 0.2 on average.
"""
MAX_ITERATIONS, TOLERANCE = 1000, 1e-9
"""Limits of a run to convergence; an iteration has three EM passes."""
LAW_DRAWS = 200_000
"""Number of draws for a p-value of the limit distribution, accurate to 0.001; the same draws every time."""


@dataclass(frozen=True)
class LikelihoodRatioTest(Summarised):
    """Test whether one more latent class is needed; small p-values indicate that it is.

    Parameters
    ----------
    rank
        Number of classes under the hypothesis; the alternative has one more.
    statistic
        Twice the difference of the log-likelihoods, at least 0.
    degrees
        Difference of the numbers of free parameters. The statistic does not have a chi-squared distribution with this
        number of degrees of freedom.
    p_value, p_error
        Bootstrap p-value, and its standard error due to the number of draws; None without draws.
    n_draws
        Number of drawn tables.
    vuong_p, adjusted_p
        P-value by Vuong, Lo, Mendell and Rubin, for the statistic and for its small-sample adjustment; None if the
        models are too large.
    drawn
        Statistics of the drawn tables, in order.
    log_likelihoods
        Log-likelihoods of both models, nats.
    """

    rank: int
    statistic: float
    degrees: int
    p_value: float | None
    p_error: float | None
    n_draws: int
    vuong_p: float | None
    adjusted_p: float | None
    drawn: tuple[float, ...]
    log_likelihoods: tuple[float, float]

    def summary(self) -> Summary:
        """Return a summary of the test: text in a terminal, HTML in a notebook."""
        first, second = (decimal(each, 8) for each in self.log_likelihoods)
        facts = [
            ("log-likelihoods", f"{first} and {second} nats"),
            ("twice the difference", decimal(self.statistic)),
            ("parameters more", format_count(self.degrees)),
        ]
        if self.p_value is not None and self.p_error is not None:
            said = f"{decimal(self.p_value, 2)} +- {decimal(self.p_error, 1)}, of {self.n_draws} drawn tables"
            facts.append(("bootstrap p", said))
        if self.vuong_p is not None and self.adjusted_p is not None:
            facts.append(("Vuong-Lo-Mendell-Rubin p", decimal(self.vuong_p, 2)))
            facts.append(("the same, adjusted", decimal(self.adjusted_p, 2)))
        notes = (
            "The law of Vuong, Lo, Mendell and Rubin does not hold for this hypothesis: trust the bootstrap",
        )
        return Summary(
            f"{self.rank} latent classes against {self.rank + 1}",
            tuple(facts),
            notes if self.vuong_p is not None else (),
        )


@reports_progress
def likelihood_ratio_test(
    samples: object,
    rank: int,
    *,
    schema: Schema | None = None,
    draws: int = 99,
    seed: int = 0,
    weight: object | None = None,
) -> LikelihoodRatioTest:
    """Test a number of latent classes against one more, both fitted by maximum likelihood.

    Parameters
    ----------
    samples
        `Codes` of shape (n_rows, n_variables), -1 missing, or a table.
    rank
        Number of classes under the hypothesis, at least 1.
    schema
        Variables; by default inferred from the samples.
    draws
        Number of tables drawn from the smaller model, with the missing cells of the samples, and fitted by both models;
        at least 0. With 99 draws, p-values around 0.05 are accurate to 0.02.
    seed
        Random seed of the fits and of the draws, at least 0; equal seeds give equal bits.
    weight
        Weights of the samples, as for `pmflib.fit_em`; likelihoods are those of the effective number of samples.

    Returns
    -------
    The statistic and its p-values.

    Raises
    ------
    SchemaError
        If the samples do not fit the schema.
    PmfError
        If an argument is out of range, there are no samples, or they are stored.

    Notes
    -----
    The bootstrap p-value is (1 + number of draws with a statistic at least as large) / (1 + draws). Each drawn table is
    fitted by the smaller model, starting from the model it was drawn from, and by one more class, from starts that
    split one of its states and from random ones. Optima missed by these starts make the statistics of draws, and the
    p-value, too small. With weights, each drawn row has the weight of the row in its place: in drawn tables answers do
    not depend on the weights, as they do if people of some classes were sampled more often, and clusters are ignored.
    Vuong's distribution uses products of the weighted scores.

    Vuong's distribution of the statistic assumes that the parameters of both models are identified. Under the smaller
    model those of the larger model are not: Jeffries showed that the proof of Lo, Mendell and Rubin fails. The test is
    included because other programs report it.

    References
    ----------
    McLachlan (1987), Applied Statistics 36(3), for the bootstrap; Nylund, Asparouhov, Muthén (2007), Structural
    Equation Modeling 14(4); Vuong (1989), Econometrica 57(2), theorem 3.3; Lo, Mendell, Rubin (2001), Biometrika 88(3);
    Jeffries (2003), Biometrika 90(4).
    """
    check_rank(rank)
    check(at_least(0, whole=True), draws=draws)
    if isinstance(samples, StoredSamples):
        raise PmfError(
            "samples is stored; tests of the rank take samples in memory: samples.read_codes()"
        )
    if schema is None:
        schema = Schema.infer(samples)
    check_row_order(samples, weight=weight)
    block = weigh_samples(DenseBlock(schema.encode(samples)), weight, schema.weight_decimals)
    small, large = _fit_both(block, rank, schema, seed)
    first, second = (_measure(each, block) for each in (small, large))
    statistic = max(0.0, 2 * (second.log_likelihood - first.log_likelihood))
    degrees = count_parameters(large) - count_parameters(small)
    drawn = []
    for draw in range(draws):
        drawn.append(_draw_ratio(block, small, np.random.default_rng([seed, 1 + draw])))
        report_step(draw + 1, draws, "drawn tables")
    p_value = p_error = None
    if draws:
        p_value = (1 + sum(each >= statistic for each in drawn)) / (1 + draws)
        p_error = math.sqrt(p_value * (1 - p_value) / draws)
    vuong = adjusted = None
    if (rank + 1) * (1 + schema.n_levels) <= MAX_ENTRIES:
        # adjustment by Lo, Mendell and Rubin, from the added parameters and the samples
        n_rows = max(first.n_rows, 2)
        shrunk = statistic / (1 + 1 / (max(degrees, 1) * math.log(n_rows)))
        weights = _find_weights(block, large, small)
        vuong, adjusted = (_find_tail(weights, each) for each in (statistic, shrunk))
    return LikelihoodRatioTest(
        rank,
        statistic,
        degrees,
        p_value,
        p_error,
        draws,
        vuong,
        adjusted,
        tuple(drawn),
        (first.log_likelihood, second.log_likelihood),
    )


def _fit_both(block: DenseBlock, rank: int, schema: Schema, seed: int) -> tuple[JointPMF, JointPMF]:
    """Fit models with a number of classes and with one more, at the best optima found."""
    small, large = (
        EMFit(schema, each, Options.make("auto", 0.0, 1, each), seed, Passes())
        .fit_samples(block, None, None)
        .model
        for each in (rank, rank + 1)
    )
    small = _reach(block, small, [small])
    starts = [large, *_make_starts(small, np.random.default_rng([seed, 0]))]
    return small, _reach(block, small, starts)


def _measure(model: JointPMF, block: DenseBlock) -> Criteria:
    """Compute the likelihood of a model."""
    return measure_fit(model, BlocksInMemory.cut(block, model.schema.offsets, model.rank))


def _draw_ratio(block: DenseBlock, small: JointPMF, rng: np.random.Generator) -> float:
    """Compute the statistic of a table drawn from the smaller model with the samples' gaps and weights."""
    table = small.sample(len(block), rng)
    table[block.codes < 0] = -1
    drawn = DenseBlock(table, block.weights)
    first = _reach(drawn, small, [small])
    second = _reach(drawn, small, _make_starts(first, rng))
    gain = (second.log_prob(table) - first.log_prob(table)) * weigh_rows(drawn)
    return max(0.0, 2 * float(gain.sum()))


def _make_starts(small: JointPMF, rng: np.random.Generator) -> list[JointPMF]:
    """Make starts with one more state: by splitting a state in two, and random ones."""
    offsets, singles = small.schema.offsets, small.factors @ small.prior
    made: list[Parameters] = []
    for _ in range(N_SPLIT):
        split = int(rng.choice(small.rank, p=small.prior / small.prior.sum()))
        prior = np.append(small.prior, small.prior[split] / 2)
        prior[split] /= 2
        factors = np.column_stack([small.factors, small.factors[:, split]])
        moved = factors[:, [split, -1]] * rng.uniform(0.5, 1.5, (len(factors), 2))
        factors[:, [split, -1]] = normalise_blocks(moved, offsets, singles[:, None])
        made.append((prior, factors))
    for _ in range(N_RANDOM):
        made.append(start_random(singles, offsets, rank=small.rank + 1, rng=rng))
    return [JointPMF(*each, small.schema) for each in made]


def _reach(block: DenseBlock, small: JointPMF, starts: list[JointPMF]) -> JointPMF:
    """Return the best optimum from several starts: all make some passes, and the best run to convergence."""
    schema, rows = small.schema, _DistinctRows.of(block, small.schema.offsets)
    models: list[Parameters] = [(each.prior, each.factors) for each in starts]
    if len(models) > 1:
        losses, priors, factors = rows.raise_together(models, SHORT_PASSES)
        order = np.argsort(losses, kind="stable")[:N_FINISHED]
        models = [(priors[k], factors[:, k]) for k in order.tolist()]
    ends = [
        descend(rows.update, each, schema.offsets, max_iter=MAX_ITERATIONS, tol=TOLERANCE)
        for each in models
    ]
    best = min(ends, key=lambda each: each.loss_history[-1])
    return JointPMF(best.prior, best.factors, schema)


@dataclass(frozen=True, eq=False)
class _DistinctRows:
    """Distinct rows of a small table, for thousands of EM passes of a few microseconds each.

    Parameters
    ----------
    levels
        Sparse, (n_rows, n_levels): 1 where a row holds a level.
    transposed
        The same, transposed.
    weights
        float64 of shape (n_rows,), sum 1: share of each row.
    offsets
        int64 of shape (n_variables + 1,).
    """

    levels: Any
    transposed: Any
    weights: FloatArray
    offsets: IntArray

    @classmethod
    def of(cls, block: DenseBlock, offsets: IntArray) -> _DistinctRows:
        """Return the distinct rows of a block that hold anything."""
        from scipy.sparse import csr_array

        kept = np.flatnonzero((block.codes >= 0).any(axis=1))
        distinct = merge_duplicates(block[kept] if kept.size else block)
        codes, weights = distinct.to_codes(offsets), weigh_rows(distinct)
        rows, columns = np.nonzero(codes >= 0)
        held = offsets[columns] + codes[rows, columns]
        shape = len(codes), int(offsets[-1])
        levels = csr_array((np.ones(rows.size), (rows, held)), shape=shape)
        return cls(levels, levels.T.tocsr(), weights / weights.sum(), offsets)

    def update(self, model: Parameters) -> tuple[float, Parameters]:
        """Return the loss of a model, negative log-likelihood per row, and its EM update."""
        losses, prior, factors = self._pass(model[0][None], model[1][:, None])
        return float(losses[0]), (prior[0], factors[:, 0])

    def raise_together(
        self, models: Sequence[Parameters], n_passes: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Make EM passes from several models of equal rank; returns losses, priors and factors."""
        priors = np.stack([prior for prior, _ in models])
        factors = np.stack([each for _, each in models], axis=1)
        for _ in range(n_passes):
            losses, priors, factors = self._pass(priors, factors)
        return losses, priors, factors

    def _pass(
        self, priors: FloatArray, factors: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the losses (n_models,) of models, and the updated priors and factors, (n_levels, n_models, rank)."""
        n_levels, shape = len(factors), priors.shape
        logs = self.levels @ np.log(np.maximum(factors, FLOOR)).reshape(n_levels, -1)
        logs = logs.reshape(-1, *shape) + np.log(np.maximum(priors, FLOOR))
        largest = logs.max(axis=2, keepdims=True)
        posteriors = np.exp(logs - largest)
        totals = posteriors.sum(axis=2, keepdims=True)
        losses = -(self.weights @ (np.log(totals) + largest)[..., 0])
        posteriors *= self.weights[:, None, None] / totals
        mass = (self.transposed @ posteriors.reshape(len(posteriors), -1)).reshape(factors.shape)
        sums = np.add.reduceat(mass, self.offsets[:-1], axis=0)
        sums = np.repeat(sums, np.diff(self.offsets), axis=0)
        return losses, posteriors.sum(axis=0), np.where(sums > 0, mass / sums, factors)


def _find_weights(block: DenseBlock, large: JointPMF, small: JointPMF) -> FloatArray:
    """Compute the weights in the limit distribution of the ratio, a weighted sum of squares: (n_weights,)."""
    block, roots, scores = block[np.flatnonzero((block.codes >= 0).any(axis=1))], [], []
    for model in (large, small):
        information = ClassInformation(model)
        solved = information.invert(information.sum_information([block]))
        values, vectors = np.linalg.eigh(solved.covariance)
        kept = values > 1e-12 * max(float(values.max(initial=0.0)), 1e-300)
        roots.append(vectors[:, kept] * np.sqrt(values[kept]))
        batches = [
            batch.scores * batch.weights[:, None] for batch in information.iterate_scores([block])
        ]
        scores.append(np.concatenate(batches) @ roots[-1])
    both = np.hstack(scores)
    values, vectors = np.linalg.eigh(both.T @ both)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    signs = np.repeat([1.0, -1.0], [each.shape[1] for each in roots])
    return np.asarray(np.linalg.eigvalsh((root.T * signs) @ root))


def _find_tail(weights: FloatArray, statistic: float) -> float:
    """Compute the probability that a weighted sum of squares of standard normals is at least as large."""
    rng = np.random.default_rng(0)
    sums = np.zeros(LAW_DRAWS)
    for weight in weights[np.abs(weights) > 1e-9].tolist():
        sums += weight * rng.standard_normal(LAW_DRAWS) ** 2
    return float((sums >= statistic).mean())
