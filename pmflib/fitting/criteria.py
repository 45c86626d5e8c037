"""Information criteria of fitted models: from samples, and from pairs alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmflib.core.arrays import FLOOR, BoolArray, FloatArray, IntArray
from pmflib.core.errors import MemoryPlanError, PmfError, SchemaError
from pmflib.counting.pair_counts import PairCounts
from pmflib.display.summary import Summarised, Summary, decimal, format_count
from pmflib.em.stored_samples import StoredSamples
from pmflib.model import JointPMF
from pmflib.model.forests.tree_pmf import TreePMF
from pmflib.running.maps import run_blocks
from pmflib.store.sample_blocks import BlockReference, read_blocks

MAX_COMPOSITE = 4000
"""Entries of prior and factors whose information matrix `score_composite` decomposes."""

BATCH_ENTRIES = 1 << 20
"""Posteriors of samples in memory at a time, entries."""

EIGENVALUE_SHARE = 1e-9
"""Share of the largest eigenvalue below which a direction of the parameters is not determined by the pairs."""


@dataclass(frozen=True)
class Criteria(Summarised):
    """Criteria of a model on the samples it was fitted to; less is better.

    Parameters
    ----------
    n_parameters
        Free parameters.
    n_rows
        Samples with anything observed.
    log_likelihood
        Log-likelihood of all samples, nats.
    entropy
        Entropies of the posteriors of the latent state, nats, summed: 0 where every sample's state is certain.
    """

    n_parameters: int
    n_rows: int
    log_likelihood: float
    entropy: float

    @property
    def aic(self) -> float:
        """Akaike's criterion."""
        return -2 * self.log_likelihood + 2 * self.n_parameters

    @property
    def bic(self) -> float:
        """Schwarz's criterion."""
        return -2 * self.log_likelihood + self.n_parameters * math.log(max(self.n_rows, 1))

    @property
    def icl(self) -> float:
        """Integrated completed likelihood: Schwarz's, and twice the entropy of the posteriors."""
        return self.bic + 2 * self.entropy

    def summary(self) -> Summary:
        """The criteria, and what they are made of: text in a terminal, HTML in a notebook."""
        facts = (
            ("AIC", decimal(self.aic, 8)),
            ("BIC", decimal(self.bic, 8)),
            ("ICL", decimal(self.icl, 8)),
            ("log-likelihood", f"{decimal(self.log_likelihood, 8)} nats"),
            ("free parameters", format_count(self.n_parameters)),
            ("samples", format_count(self.n_rows)),
            ("entropy of states", f"{decimal(self.entropy, 8)} nats"),
        )
        return Summary("Information criteria; less is better", facts)


@dataclass(frozen=True)
class CompositeCriteria(Summarised):
    """Criteria of a model on the pairs it was fitted to; less is better.

    Parameters
    ----------
    n_effective
        Effective number of parameters: tr(J H^-1), H the information of the pairs as if each were a
        sample of its own, J the variance of their score. Pairs of one sample depend on each other, so that
        it is above the number of parameters.
    n_rows
        Samples counted.
    log_likelihood
        Composite: of all pairs, nats.
    """

    n_effective: float
    n_rows: int
    log_likelihood: float

    @property
    def aic(self) -> float:
        """Akaike's criterion for the composite likelihood."""
        return -2 * self.log_likelihood + 2 * self.n_effective

    @property
    def bic(self) -> float:
        """Schwarz's criterion for the composite likelihood."""
        return -2 * self.log_likelihood + self.n_effective * math.log(max(self.n_rows, 1))

    def summary(self) -> Summary:
        """The criteria, and what they are made of: text in a terminal, HTML in a notebook."""
        facts = (
            ("AIC", decimal(self.aic, 8)),
            ("BIC", decimal(self.bic, 8)),
            ("log-likelihood of pairs", f"{decimal(self.log_likelihood, 8)} nats"),
            ("effective parameters", decimal(self.n_effective)),
            ("samples", format_count(self.n_rows)),
        )
        return Summary("Information criteria of pairs; less is better", facts)


def count_parameters(model: JointPMF, level_counts: IntArray | None = None) -> int:
    """Count the free parameters of a model.

    Parameters
    ----------
    model
        The model.
    level_counts
        int64 of shape (n_levels,): samples that hold each level. A level that none holds is no
        parameter; None takes every level as seen. Tables of forests have it as 0 already.

    Returns
    -------
    States of positive prior less one, and, for each of them and each variable, the levels of positive
    probability less one: what is exactly 0 stays there in EM and is fixed.

    Raises
    ------
    SchemaError
        If level_counts has another shape.
    PmfError
        If the model has continuous traits: its states are points of an integral, and no parameters.
    """
    if model.trait_model is not None:
        raise PmfError(
            "model has continuous traits, whose states are no parameters to count; compare it with others by "
            "held-out samples, as method 'compare' does"
        )
    kept = model.prior > 0
    if isinstance(model, TreePMF):
        forest = model.forest
        states = np.searchsorted(forest.starts[:, 0], forest.rows, side="right") - 1
        sizes = np.add.reduceat(model.tables > 0, forest.rows, dtype=np.int64)
        return int(kept.sum()) - 1 + int((sizes - 1)[kept[states]].sum())
    free = _find_free(model, level_counts)
    by_variable = np.add.reduceat(free[:, kept], model.schema.offsets[:-1], axis=0, dtype=np.int64)
    return int(kept.sum()) - 1 + int(np.maximum(by_variable - 1, 0).sum())


def score_samples(model: JointPMF, samples: object) -> Criteria:
    """Criteria of a model on samples, in memory or in a store.

    Parameters
    ----------
    model
        Fitted to these samples by maximum likelihood; pseudo-counts and averages of fits make the criteria too strict.
    samples
        Codes of shape (n_rows, n_variables), -1 missing; what the schema can encode; or `StoredSamples`, whose workers
        share the work: the same bits with any number of them.

    Raises
    ------
    SchemaError
        If the samples do not fit the schema.
    PmfError
        If the model has continuous traits.
    StoreError
        If stored samples are gone or damaged.

    References
    ----------
    Akaike (1974); Schwarz (1978); Biernacki, Celeux and Govaert (2000), IEEE Transactions on Pattern
    Analysis and Machine Intelligence 22.
    """
    if isinstance(samples, StoredSamples) and samples.blocks:
        if samples.schema.digest != model.schema.digest:
            raise SchemaError(
                "model and samples have different schemas; take both from one pipeline"
            )
        sums = run_blocks(samples.client, _sum_block, samples.blocks, _add_sums, model)
    else:
        table = samples.read_codes() if isinstance(samples, StoredSamples) else samples
        sums = _sum_codes(model.schema.encode(table), model)
    n_parameters = count_parameters(model, sums.level_counts)
    return Criteria(n_parameters, sums.n_rows, sums.log_likelihood, sums.entropy)


@dataclass(frozen=True, eq=False)
class _SampleSums:
    """What the criteria of samples are made of: it adds up."""

    n_rows: int
    log_likelihood: float
    entropy: float
    level_counts: IntArray


def _sum_codes(codes: IntArray, model: JointPMF) -> _SampleSums:
    """Sums of the rows with anything observed."""
    codes = codes[(codes >= 0).any(axis=1)]
    level_counts = [
        np.bincount(column[column >= 0], minlength=size)
        for column, size in zip(codes.T, np.diff(model.schema.offsets), strict=True)
    ]
    entropy = 0.0
    step = max(1, BATCH_ENTRIES // model.rank)
    for start in range(0, len(codes), step):
        posteriors = model.posterior(codes[start : start + step])
        entropy -= float((posteriors * np.log(np.maximum(posteriors, FLOOR))).sum())
    log_likelihood = float(model.log_prob(codes).sum())
    return _SampleSums(len(codes), log_likelihood, entropy, np.concatenate(level_counts))


def _sum_block(reference: BlockReference, model: JointPMF) -> _SampleSums:
    (block,) = read_blocks([reference])
    return _sum_codes(block.to_codes(model.schema.offsets), model)


def _add_sums(parts: Sequence[_SampleSums]) -> _SampleSums:
    return _SampleSums(
        sum(part.n_rows for part in parts),
        sum(part.log_likelihood for part in parts),
        sum(part.entropy for part in parts),
        np.sum([part.level_counts for part in parts], axis=0),
    )


def score_composite(model: JointPMF, counts: PairCounts) -> CompositeCriteria:
    """Criteria of a model on co-occurrence counts.

    Parameters
    ----------
    model
        Fitted to these counts by the pairwise composite likelihood (`fit` with method "auto").
    counts
        Counts of at least two folds with pairs: the spread of their scores shows how pairs of one sample
        depend on each other. More folds, a surer number.

    Raises
    ------
    SchemaError
        If model and counts have different schemas.
    PmfError
        If fewer than two folds hold a pair, or the model has forests or continuous traits.
    MemoryPlanError
        If prior and factors have more than ``MAX_COMPOSITE`` entries.

    Notes
    -----
    Parameters are the logarithms of prior and factors up to a constant, so that what is exactly 0, or
    a level never seen, is none. The relative standard error of ``n_effective`` is about
    sqrt(2 / (n_folds n_effective)).

    References
    ----------
    Varin and Vidoni (2005), Biometrika 92; Gao and Song (2010), Journal of the American Statistical
    Association 105, for the two criteria.
    """
    schema = model.schema
    if schema.digest != counts.schema.digest:
        raise SchemaError("model and counts have different schemas; take both from one pipeline")
    if isinstance(model, TreePMF) or model.trait_model is not None:
        raise PmfError(
            "model has forests or traits, which pairs were not fitted with; give the samples"
        )
    n_entries = (schema.n_levels + 1) * model.rank
    if n_entries > MAX_COMPOSITE:
        raise MemoryPlanError(
            f"prior and factors have {n_entries} entries, above {MAX_COMPOSITE}; compare ranks by "
            "select_rank instead"
        )
    owners = np.repeat(np.arange(schema.n_variables), np.diff(schema.offsets))
    tables = np.where(owners[:, None] < owners, counts.tables, 0)
    tables = tables[tables.any(axis=(1, 2))]
    if len(tables) < 2:
        raise PmfError(f"counts has {len(tables)} folds with pairs; count with n_folds=16")
    logs = np.log(np.maximum((model.factors * model.prior) @ model.factors.T, FLOOR))
    total = tables.sum(axis=0)
    scores = np.array([_take_score(model, table + table.T) for table in tables])
    # at an optimum the scores sum to 0; what is left of them is not spread
    spread = scores - scores.mean(axis=0)
    values, vectors = np.linalg.eigh(_take_information(model, total))
    kept = values > EIGENVALUE_SHARE * values.max(initial=0.0)
    moved = spread @ vectors[:, kept]
    n_effective = float((moved**2 / values[kept]).sum()) * len(tables) / (len(tables) - 1)
    return CompositeCriteria(n_effective, int(counts.n_rows.sum()), float(np.vdot(total, logs)))


def _find_free(model: JointPMF, level_counts: IntArray | None) -> BoolArray:
    """Entries of the factors that are parameters."""
    free = model.factors > 0
    if level_counts is not None:
        if level_counts.shape != (model.schema.n_levels,):
            raise SchemaError(
                f"level_counts has shape {level_counts.shape}; the schema has {model.schema.n_levels} levels"
            )
        free &= (level_counts > 0)[:, None]
    return free


def _take_score(model: JointPMF, table: IntArray) -> FloatArray:
    """Gradient of the composite log-likelihood in the logarithms of factors, then of the prior."""
    prior, factors, offsets = model.prior, model.factors, model.schema.offsets
    expected = (factors * prior) @ factors.T
    ratio = np.where(table > 0, table / np.maximum(expected, FLOOR), 0.0)
    mass = factors * prior * (ratio @ factors)
    sums = np.add.reduceat(mass, offsets[:-1], axis=0)
    levels = mass - factors * np.repeat(sums, np.diff(offsets), axis=0)
    states = mass.sum(axis=0) / 2
    return np.concatenate([levels.ravel(), states - prior * states.sum()])


def _take_information(model: JointPMF, table: IntArray) -> FloatArray:
    """Expected information of the pairs, in the parameters of `_take_score`, pair by pair of variables."""
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
    """Derivative of a variable's PMFs in the logarithms of their entries: (levels, levels, rank)."""
    size = factor.shape[0]
    return np.asarray(factor[:, None, :] * (np.eye(size)[:, :, None] - factor[None, :, :]))
