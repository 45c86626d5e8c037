"""Whether pairs of variables hang together more than a model says: bivariate residuals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.counting.pair_counts import PairCounts
from pmflib.level_blocks import FLOOR, repeat_blocks, sum_pairs
from pmflib.model import JointPMF


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
    held = sum_pairs(table, offsets)
    expected = _fit_margins(_find_pairs(model), table, offsets)
    ratio = np.log(np.maximum(table, 1e-12) / np.maximum(expected, 1e-12))
    gains = sum_pairs(np.where(table > 0, table * ratio, 0.0), offsets)
    seen = np.add.reduceat(np.diag(table) > 0, offsets[:-1], dtype=np.int64)
    free = np.maximum(seen - 1, 0)
    n_pairs = max(len(seen) * (len(seen) - 1) // 2, 1)
    costs = 0.5 * np.outer(free, free) * np.log(np.maximum(held, 1.0)) + math.log(n_pairs)
    gains[np.outer(free, free) == 0] = 0.0
    np.fill_diagonal(gains, 0.0)
    return PairResiduals(model.schema.names, gains, costs)


def _find_pairs(model: JointPMF) -> FloatArray:
    """Joint PMFs of all pairs under a model without edges: (n_levels, n_levels)."""
    return np.asarray((model.factors * model.prior) @ model.factors.T)


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
