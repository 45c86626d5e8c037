"""Information criteria of models fitted to samples or to pairs."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np

from pmflib.base.arrays import FLOOR, FloatArray, IntArray
from pmflib.base.blocks import Block, weigh_rows
from pmflib.base.constraints import at_least, check, check_schemas, check_size
from pmflib.base.display.summary import Summarised, Summary, decimal, format_count
from pmflib.base.errors import PmfError
from pmflib.counts.pair_counts import PairCounts
from pmflib.em.block_source import BlocksInMemory, BlockSource, iterate_distinct
from pmflib.em.latent_classes import evaluate_group
from pmflib.em.stored_samples import StoredSamples
from pmflib.fits.fit_statistics import Criteria
from pmflib.model import JointPMF
from pmflib.model.sufficient_statistics import EMStatistics, merge_each, sum_fields, take_logs
from pmflib.store.sample_blocks import BlockGroup

MAX_COMPOSITE = 4000
"""Maximum number of entries of prior and factors for which `score_composite` decomposes the information matrix."""

BATCH_ENTRIES = 1 << 20
"""Number of posteriors of samples in memory at a time."""

MOST_LOG_CELLS = 700.0
"""Logarithm of the number of cells above which the number is infinite: floats overflow at exp(709)."""

EIGENVALUE_SHARE = 1e-9
"""Relative eigenvalue below which a direction of the parameters is not determined by the pairs."""


@dataclass(frozen=True)
class CompositeCriteria(Summarised):
    """Information criteria of a model for the pairs to which it was fitted; lower is better.

    Parameters
    ----------
    n_effective
        Effective number of parameters: tr(J H^-1), where H is the information of the pairs as if they were independent
        and J the variance of their score. Pairs from one sample are dependent, so it exceeds the number of parameters.
    n_rows
        Number of samples.
    log_likelihood
        Composite log-likelihood of all pairs, nats.
    """

    n_effective: float
    n_rows: int
    log_likelihood: float

    @property
    def aic(self) -> float:
        """Return Akaike's criterion for the composite likelihood."""
        return -2 * self.log_likelihood + 2 * self.n_effective

    @property
    def bic(self) -> float:
        """Return Schwarz's criterion for the composite likelihood."""
        return -2 * self.log_likelihood + self.n_effective * math.log(max(self.n_rows, 1))

    def summary(self) -> Summary:
        """Return a summary of the criteria and their components: text in a terminal, HTML in a notebook."""
        facts = (
            ("AIC", decimal(self.aic, 8)),
            ("BIC", decimal(self.bic, 8)),
            ("log-likelihood of pairs", f"{decimal(self.log_likelihood, 8)} nats"),
            ("effective parameters", decimal(self.n_effective)),
            ("samples", format_count(self.n_rows)),
        )
        return Summary("Information criteria of pairs; lower is better", facts)


def count_parameters(model: JointPMF, level_counts: IntArray | None = None) -> int:
    """Count the free parameters of a model.

    Parameters
    ----------
    model
        The model.
    level_counts
        int64 of shape (n_levels,): number of samples with each level. A level that was never observed is not a
        parameter; None treats every level as observed. In tables of forests, such levels are already 0.

    Returns
    -------
    For latent classes: the number of states with positive prior minus one, plus, for each of them and each variable,
    the number of levels with positive probability minus one. Exact zeros remain zero in EM and are treated as fixed.
    For an item response model: its intercepts and slopes minus the rotations of the traits.

    Raises
    ------
    SchemaError
        If level_counts has another shape.
    PmfError
        If the model has continuous traits and is not a maximum of a likelihood.
    """
    if why := model.unsupported.get("criteria"):
        raise PmfError(f"model {why}")
    return model.count_free(level_counts)


def score_samples(model: JointPMF, samples: object) -> Criteria:
    """Compute the likelihood and information criteria of a model on samples, in memory or in a store.

    Parameters
    ----------
    model
        Model fitted to these samples by maximum likelihood; with pseudo-counts or averages of fits the criteria are too
        strict.
    samples
        `Codes` of shape (n_rows, n_variables), -1 missing; a table that the schema can encode; or `StoredSamples`,
        whose workers share the computation with equal bits for any number of them.

    Raises
    ------
    SchemaError
        If the samples do not fit the schema.
    PmfError
        If the model was fitted with weights, and the samples are in memory, where they have none.
    StoreError
        If stored samples are missing or damaged.

    References
    ----------
    Akaike (1974); Schwarz (1978); Sclove (1987), Psychometrika 52; Bozdogan (1987), Psychometrika 52; Biernacki, Celeux
    and Govaert (2000), IEEE Transactions on Pattern Analysis and Machine Intelligence 22; for the relative entropy
    Ramaswamy, DeSarbo, Reibstein and Robinson (1993), Marketing Science 12.
    """
    if isinstance(samples, StoredSamples):
        check_schemas(model=model, samples=samples)
        return measure_fit(model, samples)
    if model.origin.n_effective is not None:
        raise PmfError(
            "samples is given without weights, and the model was fitted with weights; the criteria of its fit are "
            "those of result.training"
        )
    offsets = model.schema.offsets
    return measure_fit(model, BlocksInMemory.cut(model.schema.encode(samples), offsets, model.rank))


def measure_fit(model: JointPMF, source: BlockSource) -> Criteria:
    """Compute the likelihood and criteria of a model on blocks of samples, in one pass."""
    if model.is_mixture:
        n_bytes = 8 * (model.schema.n_levels + 1) * model.rank
        shared = model.schema.offsets, [(model.prior, model.factors)]
        (statistics,) = source.map_blocks(
            evaluate_group, merge_each, *shared, result_bytes=n_bytes, name="measure"
        )
        return measure_statistics(model, statistics)
    n_bytes = 8 * model.schema.n_levels
    sums = source.map_blocks(_sum_group, sum_fields, model, result_bytes=n_bytes, name="measure")
    return _make_criteria(model, sums)


def measure_statistics(model: JointPMF, statistics: EMStatistics) -> Criteria:
    """Compute the likelihood and criteria of latent classes from the sufficient statistics of the samples.

    Parameters
    ----------
    model
        Latent class model, from one fit or an average.
    statistics
        Result of `em_statistics` for all samples.
    """
    return _make_criteria(model, sum_statistics(statistics, model.prior, model.factors))


def sum_statistics(statistics: EMStatistics, prior: FloatArray, factors: FloatArray) -> SampleSums:
    """Compute the sums of all samples from their sufficient statistics under a model.

    Notes
    -----
    The entropy of a sample's posterior equals its log-likelihood minus the posterior mean of the log joint probability
    of state and answers, which is linear in the statistics.
    """
    log_prior, log_factors = take_logs(prior, factors)
    joint = np.vdot(statistics.level_mass, log_factors) + statistics.state_mass @ log_prior
    n_rows = float(statistics.state_mass.sum())
    return SampleSums(
        n_rows=n_rows,
        n_empty=statistics.n_rows - n_rows,
        log_likelihood=statistics.log_likelihood,
        entropy=max(0.0, statistics.log_likelihood - float(joint)),
        level_counts=statistics.level_mass.sum(axis=1),
    )


def _make_criteria(model: JointPMF, sums: SampleSums) -> Criteria:
    seen = np.add.reduceat(sums.level_counts > 0, model.schema.offsets[:-1], dtype=np.int64)
    # the parameters of a stack are shared out by weights, so that none of them counts in full
    is_counted = "criteria" not in model.unsupported and not model.origin.is_stack
    held = (sums.level_counts > 0).astype(np.int64)
    n_parameters = model.count_free(held) if is_counted else None
    found = make_criteria(sums, int(np.count_nonzero(model.prior)), n_parameters, seen)
    totals = np.add.reduceat(sums.level_counts, model.schema.offsets[:-1])
    shares = sums.level_counts / np.maximum(np.repeat(totals, model.schema.cardinalities), FLOOR)
    singles = float(sums.level_counts @ np.log(np.maximum(shares, FLOOR)))
    return replace(found, singles=(singles, int(np.maximum(seen - 1, 0).sum())))


def make_criteria(
    sums: SampleSums, n_states: int, n_parameters: int | None, sizes: IntArray
) -> Criteria:
    """Make the criteria of a model, given its sums over samples and the number of levels of each variable."""
    # a sum of logarithms, because a product over thousands of variables overflows
    log_cells = float(np.log(np.maximum(sizes, 1)).sum())
    return Criteria(
        log_likelihood=float(sums.log_likelihood),
        entropy=float(sums.entropy),
        n_rows=round(sums.n_rows),
        n_empty=round(sums.n_rows + sums.n_empty) - round(sums.n_rows),
        n_states=n_states,
        n_parameters=n_parameters,
        n_cells=round(math.exp(log_cells)) if log_cells < MOST_LOG_CELLS else math.inf,
    )


@dataclass(frozen=True, eq=False)
class SampleSums:
    """Additive sums from which the criteria are computed."""

    n_rows: float
    n_empty: float
    log_likelihood: float
    entropy: float
    level_counts: FloatArray


def _sum_group(group: BlockGroup, model: JointPMF) -> SampleSums:
    return sum_fields([_sum_block(block, model) for block in iterate_distinct(group)])


def _sum_block(block: Block, model: JointPMF) -> SampleSums:
    """Compute the sums of a block, whose rows may be weighted."""
    weights, sparse = weigh_rows(block), block.to_sparse(model.schema.offsets)
    lengths = np.diff(sparse.indptr)
    each = np.repeat(weights, lengths)
    counted = np.bincount(sparse.indices, each, model.schema.n_levels)
    level_counts = np.asarray(counted, np.float64)
    log_likelihood = entropy = 0.0
    step = max(1, BATCH_ENTRIES // model.rank)
    for start in range(0, block.n_rows, step):
        part = block.cut(start, min(start + step, block.n_rows))
        scores, posteriors = np.empty(part.n_rows), np.empty((part.n_rows, model.rank))
        model.score_block(part, scores, posteriors)
        # rows with nothing observed also have a posterior: the prior
        own = weights[start : start + step] * (lengths[start : start + step] > 0)
        log_likelihood += float(own @ scores)
        logs = np.log(np.maximum(posteriors, FLOOR))
        entropy -= float(own @ np.einsum("rf,rf->r", posteriors, logs))
    n_rows = float(weights[lengths > 0].sum())
    n_empty = float(weights.sum()) - n_rows
    return SampleSums(n_rows, n_empty, log_likelihood, max(entropy, 0.0), level_counts)


def score_composite(model: JointPMF, counts: PairCounts) -> CompositeCriteria:
    """Compute composite-likelihood criteria of a model on co-occurrence counts.

    Parameters
    ----------
    model
        Model fitted to these counts by the pairwise composite likelihood (`fit` with method "auto").
    counts
        Counts of at least two folds with pairs; the variance of their scores measures the dependence between pairs of
        one sample. More folds give a more precise value.

    Raises
    ------
    SchemaError
        If model and counts have different schemas.
    PmfError
        If fewer than two folds have pairs, or the model has forests or continuous traits.
    MemoryPlanError
        If prior and factors have more than ``MAX_COMPOSITE`` entries.

    Notes
    -----
    Parameters are the unnormalised logarithms of prior and factors, so exact zeros and levels never observed are not
    parameters. The relative standard error of ``n_effective`` is about sqrt(2 / (n_folds n_effective)).

    References
    ----------
    Varin and Vidoni (2005), Biometrika 92; Gao and Song (2010), Journal of the American Statistical
    Association 105, for the two criteria.
    """
    schema = model.schema
    check_schemas(model=schema, counts=counts)
    counts = counts.to_samples()
    if model.kind != "classes":
        raise PmfError(
            "model has forests or traits, which pairs were not fitted with; pass the samples"
        )
    n_entries = (schema.n_levels + 1) * model.rank
    hint = "compare ranks by select_rank instead"
    check_size(n_entries, MAX_COMPOSITE, "entries of prior and factors", hint)
    owners = np.repeat(np.arange(schema.n_variables), np.diff(schema.offsets))
    tables = np.where(owners[:, None] < owners, counts.tables, 0)
    tables = tables[tables.any(axis=(1, 2))]
    check(
        at_least(2, "count with n_folds=16"),
        **{"number of folds with pairs in counts": len(tables)},
    )
    logs = np.log(np.maximum((model.factors * model.prior) @ model.factors.T, FLOOR))
    total = tables.sum(axis=0)
    scores = np.array([_take_score(model, table + table.T) for table in tables])
    # at an optimum the scores sum to 0; the remainder is not variance
    spread = scores - scores.mean(axis=0)
    values, vectors = np.linalg.eigh(_take_information(model, total))
    kept = values > EIGENVALUE_SHARE * values.max(initial=0.0)
    moved = spread @ vectors[:, kept]
    n_effective = float((moved**2 / values[kept]).sum()) * len(tables) / (len(tables) - 1)
    return CompositeCriteria(n_effective, int(counts.n_rows.sum()), float(np.vdot(total, logs)))


def _take_score(model: JointPMF, table: IntArray) -> FloatArray:
    """Compute the gradient of the composite log-likelihood in the logarithms of factors, then of the prior."""
    prior, factors, offsets = model.prior, model.factors, model.schema.offsets
    expected = (factors * prior) @ factors.T
    ratio = np.where(table > 0, table / np.maximum(expected, FLOOR), 0.0)
    mass = factors * prior * (ratio @ factors)
    sums = np.add.reduceat(mass, offsets[:-1], axis=0)
    levels = mass - factors * np.repeat(sums, np.diff(offsets), axis=0)
    states = mass.sum(axis=0) / 2
    return np.concatenate([levels.ravel(), states - prior * states.sum()])


def _take_information(model: JointPMF, table: IntArray) -> FloatArray:
    """Compute the expected information of the pairs in the parameters of `_take_score`, pair by pair."""
    prior, factors, offsets = model.prior, model.factors, model.schema.offsets
    rank, n_levels = model.rank, model.schema.n_levels
    information = np.zeros(((n_levels + 1) * rank,) * 2)
    states = np.arange(n_levels * rank, information.shape[0])
    slopes = [_slope(factors[a:b]) for a, b in itertools.pairwise(offsets)]
    for j in range(offsets.size - 1):
        for k in range(j + 1, offsets.size - 1):
            mine, theirs = slice(*offsets[j : j + 2]), slice(*offsets[k : k + 2])
            support = int(table[mine, theirs].sum())
            if not support:
                continue
            left, right = factors[mine], factors[theirs]
            joint = left[:, None, :] * right[None, :, :] * prior
            expected = joint.sum(axis=2)
            # cells by (level, state) of one variable, of the other, and by state
            of_left = np.einsum("acf,bf->abcf", slopes[j], right * prior)
            of_right = np.einsum("bcf,af->abcf", slopes[k], left * prior)
            of_prior = joint - expected[:, :, None] * prior
            n_cells = expected.size
            jacobian = np.hstack(
                [part.reshape(n_cells, -1) for part in (of_left, of_right, of_prior)]
            )
            own = np.concatenate(
                [
                    np.arange(offsets[j] * rank, offsets[j + 1] * rank),
                    np.arange(offsets[k] * rank, offsets[k + 1] * rank),
                    states,
                ]
            )
            weights = support / np.maximum(expected.ravel(), FLOOR)
            weights = np.where(expected.ravel() > FLOOR, weights, 0.0)
            information[np.ix_(own, own)] += jacobian.T @ (jacobian * weights[:, None])
    return information


def _slope(factor: FloatArray) -> FloatArray:
    """Compute the derivative of a variable's PMFs in the logarithms of their entries: (levels, levels, rank)."""
    size = factor.shape[0]
    return np.asarray(factor[:, None, :] * (np.eye(size)[:, :, None] - factor[None, :, :]))
