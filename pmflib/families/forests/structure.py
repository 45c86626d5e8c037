"""Structure search from class-weighted pair counts: Chow-Liu forests with a penalty for the parameters of each edge."""

from __future__ import annotations

import math

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, sum_blocks, sum_pairs

FEW_HELD = 0.05
"""Density of the pair counts below which only non-zero cells are summed; with many levels most cells are zero."""


def measure_edge_gains(mass: FloatArray, offsets: IntArray, penalty: float) -> FloatArray:
    """Compute the penalised gain in log-likelihood of each possible edge in one state.

    Parameters
    ----------
    mass
        float64 of shape (n_levels, n_levels), symmetric: expected number of samples of the state with each pair of
        levels.
    offsets
        int64 of shape (n_variables + 1,).
    penalty
        Multiple of the Bayesian information criterion, at least 0: each free parameter costs this times half the
        logarithm of the number of samples in which both variables are observed.

    Returns
    -------
    float64 of shape (n_variables, n_variables), symmetric, nats; 0 on the diagonal. The gain before the penalty is the
    mutual information times the number of samples.

    References
    ----------
    Chow, Liu (1968); Schwarz (1978).
    """
    # margins of each pair come from samples in which both variables are observed
    n_both, margins, cells = _sum_cells(mass, offsets)
    rows = sum_blocks(_weigh(margins), offsets)
    information = cells - rows - rows.T + _weigh(n_both)
    seen = sum_blocks((margins >= 1.0).astype(np.float64), offsets)
    free = np.maximum(seen - 1, 0) * np.maximum(seen.T - 1, 0)
    gains = information - penalty * 0.5 * free * np.log(np.maximum(n_both, 1.0))
    gains[free == 0] = 0.0
    np.fill_diagonal(gains, 0.0)
    return gains


def _weigh(counts: FloatArray) -> FloatArray:
    return np.asarray(counts * np.log(np.maximum(counts, 1e-300)))


def _sum_cells(mass: FloatArray, offsets: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sum cells and x log x by pair of variables, and cells by level and variable."""
    held = np.flatnonzero(mass != 0)
    if held.size >= FEW_HELD * mass.size:
        n_both, margins = sum_pairs(mass, offsets), sum_blocks(mass, offsets, axis=1)
        return n_both, margins, sum_pairs(_weigh(mass), offsets)
    n_variables, n_levels = offsets.size - 1, len(mass)
    variables = np.repeat(np.arange(n_variables), np.diff(offsets))
    rows, columns = np.divmod(held, n_levels)
    values, across = mass.ravel()[held], variables[columns]
    pairs, shape = variables[rows] * n_variables + across, (n_variables, n_variables)

    def add_up(keys: IntArray, weights: FloatArray, shape: tuple[int, int]) -> FloatArray:
        total = np.bincount(keys, weights, minlength=shape[0] * shape[1])
        return total.astype(np.float64, copy=False).reshape(shape)

    margins = add_up(rows * n_variables + across, values, (n_levels, n_variables))
    return add_up(pairs, values, shape), margins, add_up(pairs, _weigh(values), shape)


def grow_forest(gains: FloatArray) -> IntArray:
    """Find the forest with the largest total gain; an edge must also pay for encoding the choice of parent.

    Parameters
    ----------
    gains
        float64 of shape (n_variables, n_variables), symmetric: from `measure_edge_gains`, possibly summed over states.

    Returns
    -------
    int32 of shape (n_variables,): parent of each variable, -1 for a root. Ties go to the first.

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
        position = int(np.argmax(np.where(is_in, -1.0, best)))
        if best[position] > 0:
            parents[position] = through[position]
        is_in[position] = True
        better = ~is_in & (gains[position] > best)
        best[better], through[better] = gains[position][better], position
    return parents
