"""Starts with more states than are wanted, of which those that are most alike are made one, pass by pass.

EM from few random states often ends where one of them covers two groups of samples, and two others share one. With
twice as many states hardly a group is left without its own, and those that share one become alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.em.samples import Samples
from pmflib.em.statistics import m_step
from pmflib.solvers.pairs.pseudo_counts import PseudoCounts

WIDENED = 2
"""Times as many states as are wanted that a start begins with."""

FIRST_PASSES = 5
"""Passes before the first states are made one: states have to differ before it shows which are alike."""

MERGE_PASSES = 10
"""Passes in which states are made one, at most: of many states several pairs in each."""


def merge_states(
    samples: Samples,
    wide: Sequence[Parameters],
    offsets: IntArray,
    pseudo_counts: PseudoCounts,
) -> list[Parameters]:
    """Make passes of EM, and make one of the states that are most alike until as many are left as are wanted.

    Parameters
    ----------
    samples
        Training samples.
    wide
        Models of `WIDENED` times as many states as are wanted, at least one: priors and factors.
    offsets
        int64 of shape (n_variables + 1,).
    pseudo_counts
        Pseudo-counts.

    Returns
    -------
    Models of the rank that is wanted.

    References
    ----------
    Figueiredo, Jain (2002), "Unsupervised learning of finite mixture models", for EM that begins with too many states;
    Ward (1963) for what is lost when two groups are made one.
    """
    models = list(wide)
    rank = models[0][0].size // WIDENED
    passes_left = MERGE_PASSES
    for _ in range(FIRST_PASSES):
        models = _pass(samples, models, offsets, pseudo_counts)
    while (excess := models[0][0].size - rank) > 0:
        models = _pass(samples, models, offsets, pseudo_counts)
        # pairs of one pass have no state in common
        n_pairs = min(-(-excess // max(passes_left, 1)), models[0][0].size // 2)
        models = [_merge(*model, n_pairs) for model in models]
        passes_left -= 1
    return models


def _pass(
    samples: Samples,
    models: Sequence[Parameters],
    offsets: IntArray,
    pseudo_counts: PseudoCounts,
) -> list[Parameters]:
    """Make a pass of EM with each model."""
    found = samples.evaluate(models)
    return [
        m_step(statistics, offsets, pseudo_counts, *model)
        for statistics, model in zip(found, models, strict=True)
    ]


def _merge(prior: FloatArray, factors: FloatArray, n_pairs: int) -> Parameters:
    """Make one state of each of the pairs that lose least by it."""
    losses = find_losses(prior, factors)
    kept = np.ones(prior.size, bool)
    prior, factors = prior.copy(), factors.copy()
    for _ in range(n_pairs):
        first, second = np.unravel_index(np.argmin(losses), losses.shape)
        total = prior[first] + prior[second]
        share = prior[first] / total if total > 0 else 0.5
        factors[:, first] = share * factors[:, first] + (1 - share) * factors[:, second]
        prior[first] = total
        kept[second] = False
        for state in (first, second):
            losses[state], losses[:, state] = np.inf, np.inf
    return prior[kept], np.ascontiguousarray(factors[:, kept])


def find_losses(prior: FloatArray, factors: FloatArray) -> FloatArray:
    """Estimate the log-likelihood of complete data that is lost by making one state of two.

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
