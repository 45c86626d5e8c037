"""Composite likelihood of pairs: raised under pseudo-counts, and taken on pairs that were held out."""

from __future__ import annotations

import numpy as np

from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.counting.marginals import Marginals
from pmflib.solvers.pairs.composite import fit_composite
from pmflib.solvers.pairs.pseudo_counts import PseudoCounts
from pmflib.solvers.result import SolverResult

LEAST_PROBABILITY = 1e-9
"""A held-out pair that a model rules out counts as this likely: one in a billion, and not minus infinity."""


def raise_likelihood(
    marginals: Marginals,
    singles: FloatArray,
    start: Parameters,
    pseudo_count: float,
    *,
    max_iter: int,
    tol: float,
) -> SolverResult:
    """Raise the composite likelihood from a start, pairs weighing as their support, under shaped pseudo-counts.

    Parameters
    ----------
    marginals
        Marginals of the training samples.
    singles
        float64 of shape (n_levels,), PMF of each variable: what pseudo-counts are shaped by.
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
    """Log-likelihood of pairs, nats, by table.

    Parameters
    ----------
    tables
        int64 of shape (n_parts, n_levels, n_levels).
    parameters
        Prior (rank,) and factors (n_levels, rank).

    Returns
    -------
    float64 of shape (n_parts,). A pair that the model rules out counts as `LEAST_PROBABILITY`.
    """
    prior, factors = parameters
    logs = np.log(np.maximum((factors * prior) @ factors.T, LEAST_PROBABILITY))
    return np.array([np.vdot(table, logs) for table in tables])
