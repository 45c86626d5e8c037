"""Forests from class-weighted counts of pairs: Chow and Liu's trees, whose edges must be worth their parameters."""

from __future__ import annotations

import math

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.level_blocks import sum_blocks, sum_pairs


def measure_gains(mass: FloatArray, offsets: IntArray, penalty: float) -> FloatArray:
    """What each edge would gain in a state: log-likelihood less a penalty for its parameters.

    Parameters
    ----------
    mass
        float64 of shape (n_levels, n_levels), symmetric: expected number of samples of the state that hold each pair of
        levels.
    offsets
        int64 of shape (n_variables + 1,).
    penalty
        Share of the Bayesian information criterion, half the logarithm of the samples that hold both, that each free
        parameter costs; at least 0.

    Returns
    -------
    float64 of shape (n_variables, n_variables), symmetric, nats; 0 on the diagonal. The gain is the mutual information
    times the samples.

    References
    ----------
    Chow, Liu (1968); Schwarz (1978).
    """
    held = sum_pairs(mass, offsets)
    # margins of each pair among the samples that hold both
    margins = sum_blocks(mass, offsets, axis=1)
    cells = sum_pairs(_weigh(mass), offsets)
    rows = sum_blocks(_weigh(margins), offsets)
    information = cells - rows - rows.T + _weigh(held)
    seen = sum_blocks((margins >= 1.0).astype(np.float64), offsets)
    free = np.maximum(seen - 1, 0) * np.maximum(seen.T - 1, 0)
    gains = information - penalty * 0.5 * free * np.log(np.maximum(held, 1.0))
    gains[free == 0] = 0.0
    np.fill_diagonal(gains, 0.0)
    return gains


def _weigh(counts: FloatArray) -> FloatArray:
    return np.asarray(counts * np.log(np.maximum(counts, 1e-300)))


def grow_forest(gains: FloatArray) -> IntArray:
    """Forest of the largest sum of gains, of edges that gain more than it takes to name one of so many parents.

    Parameters
    ----------
    gains
        float64 of shape (n_variables, n_variables), symmetric: of `measure_gains`, or summed over states.

    Returns
    -------
    int32 of shape (n_variables,): parent of each variable, -1 at a root. The first of equals is taken.

    References
    ----------
    Prim (1957), "Shortest connection networks and some generalizations".
    """
    n_variables = len(gains)
    gains = gains - math.log(n_variables)
    parents = np.full(n_variables, -1, np.int32)
    best, through = np.zeros(n_variables), np.full(n_variables, -1)
    is_in = np.zeros(n_variables, bool)
    for _ in range(n_variables):
        place = int(np.argmax(np.where(is_in, -1.0, best)))
        if best[place] > 0:
            parents[place] = through[place]
        is_in[place] = True
        better = ~is_in & (gains[place] > best)
        best[better], through[better] = gains[place][better], place
    return parents
