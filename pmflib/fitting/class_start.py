"""Start of a fit for a target: every latent state belongs to one of its levels."""

from __future__ import annotations

import numpy as np

from pmflib.arrays import IntArray, Parameters
from pmflib.counting.pair_counts import PairCounts
from pmflib.fitting.naive_bayes import read_naive_bayes
from pmflib.level_blocks import normalise_blocks

OTHER_LEVELS = 0.01
"""Probability, at the start, that a sample in a state has another level of the target than the state's own."""


def start_classes(
    counts: PairCounts, target: int, rank: int, rng: np.random.Generator
) -> Parameters:
    """Start at naive Bayes, the state of every level divided into several, which noise distinguishes.

    Parameters
    ----------
    counts
        Co-occurrence counts of the training samples.
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
    schema, offsets = counts.schema, counts.schema.offsets
    bayes = read_naive_bayes(counts, target)
    owners = deal_states(bayes.prior.argsort(kind="stable")[::-1], rank)
    shares = np.bincount(owners, minlength=bayes.rank)[owners]
    factors = bayes.factors[:, owners]
    noise = np.where(shares > 1, rng.uniform(0.5, 1.5, factors.shape), 1.0)
    factors = normalise_blocks(factors * noise, offsets, factors)
    own = schema.rows_of(target)
    n_levels = own.stop - own.start
    factors[own] = OTHER_LEVELS / n_levels
    factors[own.start + owners, np.arange(rank)] += 1 - OTHER_LEVELS
    return bayes.prior[owners] / shares, factors


def deal_states(levels: IntArray, rank: int) -> IntArray:
    """Deal states to levels of the target in turn: int64 of shape (rank,), the level of each, rising.

    Parameters
    ----------
    levels
        int64 of shape (cardinality,): the levels, those that get one state more first.
    rank
        Number of states.
    """
    return np.sort(levels[np.arange(rank) % levels.size])
