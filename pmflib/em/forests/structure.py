"""Forests from class-weighted counts of pairs: Chow and Liu's trees, whose edges must be worth their parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmflib.core.arrays import FLOOR, FloatArray, IntArray, repeat_blocks, sum_blocks, sum_pairs
from pmflib.counting.pair_counts import PairCounts
from pmflib.model import JointPMF

FEW_HELD = 0.05
"""Share of the pairs of levels below which those that occur are summed alone: of many levels nearly none does."""


def measure_edge_gains(mass: FloatArray, offsets: IntArray, penalty: float) -> FloatArray:
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
    # margins of each pair are those among the samples that hold both
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
    """Sums over pairs of levels: of all by pair of variables, by level and variable, and of x log x by pair."""
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
    """Forest of the largest sum of gains, of edges that gain more than it takes to name one of so many parents.

    Parameters
    ----------
    gains
        float64 of shape (n_variables, n_variables), symmetric: of `measure_edge_gains`, or summed over states.

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
        position = int(np.argmax(np.where(is_in, -1.0, best)))
        if best[position] > 0:
            parents[position] = through[position]
        is_in[position] = True
        better = ~is_in & (gains[position] > best)
        best[better], through[better] = gains[position][better], position
    return parents


@dataclass(frozen=True, eq=False)
class PairResiduals:
    """What the counts of each pair of variables say against a model.

    Parameters
    ----------
    names
        Variables, in the order of the schema.
    gains
        float64 of shape (n_variables, n_variables), symmetric, nats: likelihood ratio of the counts of a pair,
        against the model; 0 on the diagonal.
    costs
        float64 of the same shape: what a gain has to be above to count as large: the Bayesian information criterion for
        the free levels of the pair, and the logarithm of the number of pairs that were looked at.
    """

    names: tuple[str, ...]
    gains: FloatArray
    costs: FloatArray

    def list_large(self) -> list[tuple[str, str, float]]:
        """Pairs with a large residual: names and gain less cost, nats, the largest first."""
        rows, columns = np.triu_indices(len(self.names), 1)
        above = (self.gains - self.costs)[rows, columns]
        order = [each for each in np.argsort(-above, kind="stable").tolist() if above[each] > 0]
        return [(self.names[rows[k]], self.names[columns[k]], float(above[k])) for k in order]


def find_residuals(model: JointPMF, counts: PairCounts) -> PairResiduals:
    """Compare the counts of all pairs with a model.

    Parameters
    ----------
    model
        The model.
    counts
        Co-occurrence counts of samples of its schema.

    Returns
    -------
    The residuals of all pairs. What a model's own PMFs of single variables miss is no residual of a pair: pairs are
    compared after both margins were fitted to the counts by one step of iterative proportional fitting.

    References
    ----------
    Vermunt, Magidson (2005), Technical Guide for Latent GOLD, "bivariate residuals".
    """
    offsets = model.schema.offsets
    table = counts.to_dense().astype(np.float64)
    n_both = sum_pairs(table, offsets)
    expected = _fit_margins(model.find_pairs(), table, offsets)
    ratio = np.log(np.maximum(table, 1e-12) / np.maximum(expected, 1e-12))
    gains = sum_pairs(np.where(table > 0, table * ratio, 0.0), offsets)
    seen = np.add.reduceat(np.diag(table) > 0, offsets[:-1], dtype=np.int64)
    free = np.maximum(seen - 1, 0)
    n_pairs = max(len(seen) * (len(seen) - 1) // 2, 1)
    costs = 0.5 * np.outer(free, free) * np.log(np.maximum(n_both, 1.0)) + math.log(n_pairs)
    gains[np.outer(free, free) == 0] = 0.0
    np.fill_diagonal(gains, 0.0)
    return PairResiduals(model.schema.names, gains, costs)


def _fit_margins(chances: FloatArray, table: FloatArray, offsets: IntArray) -> FloatArray:
    """Expected counts of all pairs, whose margins are those of the counts; three rounds leave next to nothing."""
    expected = np.maximum(chances, FLOOR)
    rows = repeat_blocks(np.add.reduceat(table, offsets[:-1], axis=1), offsets, axis=1)
    columns = repeat_blocks(np.add.reduceat(table, offsets[:-1], axis=0), offsets)
    for _ in range(3):
        sums = repeat_blocks(np.add.reduceat(expected, offsets[:-1], axis=1), offsets, axis=1)
        expected = expected * rows / np.maximum(sums, FLOOR)
        sums = repeat_blocks(np.add.reduceat(expected, offsets[:-1], axis=0), offsets)
        expected = expected * columns / np.maximum(sums, FLOOR)
    return expected
