"""Structure search from class-weighted pair counts: Chow-Liu forests with a penalty for the parameters of each edge."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import FLOOR, FloatArray, IntArray, repeat_blocks, sum_blocks, sum_pairs
from pmflib.counts.pair_counts import PairCounts
from pmflib.model import JointPMF

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


@dataclass(frozen=True, eq=False)
class PairResiduals:
    """Bivariate residuals: lack of fit of a model to the observed pair counts.

    Parameters
    ----------
    names
        Variables, in the order of the schema.
    gains
        float64 of shape (n_variables, n_variables), symmetric, nats: log-likelihood ratio between the pair counts and
        the model; 0 on the diagonal.
    costs
        float64 of the same shape: threshold above which a gain counts as large. It is the Bayesian information
        criterion for the free parameters of the pair plus the logarithm of the number of pairs tested.
    """

    names: tuple[str, ...]
    gains: FloatArray
    costs: FloatArray

    def list_large(self) -> list[tuple[str, str, float]]:
        """List pairs with large residuals, as names and gain minus cost (nats), in decreasing order."""
        rows, columns = np.triu_indices(len(self.names), 1)
        above = (self.gains - self.costs)[rows, columns]
        order = [each for each in np.argsort(-above, kind="stable").tolist() if above[each] > 0]
        return [(self.names[rows[k]], self.names[columns[k]], float(above[k])) for k in order]


def find_residuals(model: JointPMF, counts: PairCounts) -> PairResiduals:
    """Compare all observed pair counts with a model.

    Parameters
    ----------
    model
        The model.
    counts
        Co-occurrence counts of samples with the same schema.

    Returns
    -------
    Residuals of all pairs. Both margins are first fitted to the counts by iterative proportional fitting, so a misfit
    of single variables does not appear as a residual of a pair.

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
    """Compute expected pair counts with the observed margins; three rounds of fitting leave a negligible error."""
    expected = np.maximum(chances, FLOOR)
    rows = repeat_blocks(np.add.reduceat(table, offsets[:-1], axis=1), offsets, axis=1)
    columns = repeat_blocks(np.add.reduceat(table, offsets[:-1], axis=0), offsets)
    for _ in range(3):
        sums = repeat_blocks(np.add.reduceat(expected, offsets[:-1], axis=1), offsets, axis=1)
        expected = expected * rows / np.maximum(sums, FLOOR)
        sums = repeat_blocks(np.add.reduceat(expected, offsets[:-1], axis=0), offsets)
        expected = expected * columns / np.maximum(sums, FLOOR)
    return expected
