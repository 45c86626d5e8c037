"""Bivariate residuals: pairs of variables whose counts a model does not fit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import FLOOR, FloatArray, IntArray, repeat_blocks, sum_pairs
from pmflib.counts.pair_counts import PairCounts
from pmflib.model import JointPMF


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
