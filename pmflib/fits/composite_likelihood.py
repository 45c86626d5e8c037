"""Composite likelihood of pairs: maximised with pseudo-counts, and evaluated on held-out folds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, Parameters, list_owners
from pmflib.base.pseudo_counts import PseudoCounts, SolverResult
from pmflib.counts.marginals import Marginals
from pmflib.counts.pair_counts import PairCounts
from pmflib.papers.opt import fit_composite

LEAST_PROBABILITY = 1e-9
"""Probability used for a held-out pair with probability 0 under the model, to avoid a score of minus infinity."""


def raise_likelihood(
    marginals: Marginals,
    singles: FloatArray,
    start: Parameters,
    pseudo_count: float,
    *,
    max_iter: int,
    tol: float,
) -> SolverResult:
    """Maximise the composite likelihood, with pairs weighted by support and pseudo-counts shaped by the marginals.

    Parameters
    ----------
    marginals
        Marginals of the training samples.
    singles
        float64 of shape (n_levels,), PMF of each variable, to which pseudo-counts are proportional.
    start
        Prior (rank,) and factors (n_levels, rank).
    pseudo_count
        Mean pseudo-count per level and state, at least 0; see `PseudoCounts.shaped_by`.
    max_iter, tol
        As in `fit_composite`.
    """
    pseudo_counts = PseudoCounts.shaped_by(singles, marginals.offsets, pseudo_count)
    return fit_composite(
        marginals.pairs,
        marginals.offsets,
        marginals.observed,
        initial=start,
        weights=marginals.support,
        pseudo_counts=pseudo_counts,
        max_iter=max_iter,
        tol=tol,
    )


def score_pairs(tables: IntArray, parameters: Parameters) -> FloatArray:
    """Compute the log-likelihood of pairs for each table, nats.

    Parameters
    ----------
    tables
        int64 of shape (n_parts, n_levels, n_levels).
    parameters
        Prior (rank,) and factors (n_levels, rank).

    Returns
    -------
    float64 of shape (n_parts,). A pair with probability 0 under the model counts as `LEAST_PROBABILITY`.
    """
    prior, factors = parameters
    logs = np.log(np.maximum((factors * prior) @ factors.T, LEAST_PROBABILITY))
    return np.array([np.vdot(table, logs) for table in tables])


@dataclass(frozen=True, eq=False)
class TrainingRound:
    """Training counts and held-out pairs.

    Parameters
    ----------
    training
        Counts of the training folds.
    held_out
        int64 of shape (n_parts, n_levels, n_levels), upper triangles without diagonal blocks: one for each held-out
        fold with any pairs.
    """

    training: PairCounts
    held_out: IntArray


def hold_out_rounds(counts: PairCounts, n_rounds: int) -> Iterator[TrainingRound]:
    """Split the folds into rounds; each fold is held out once.

    Parameters
    ----------
    counts
        Co-occurrence counts by fold.
    n_rounds
        Maximum number of rounds, at least 2.

    Yields
    ------
    The rounds with pairs on both sides; none if there are too few folds.
    """
    offsets = counts.schema.offsets
    owners = list_owners(offsets)
    pairs = np.where(owners[:, None] < owners, counts.tables, 0)
    total = pairs.sum(axis=0)
    nonempty = [fold for fold in range(counts.n_folds) if pairs[fold].any()]
    for first in range(min(n_rounds, len(nonempty))):
        mine = nonempty[first::n_rounds]
        held_out = pairs[mine]
        if (total - held_out.sum(axis=0)).any():
            yield TrainingRound(counts.drop_folds(mine), held_out)
