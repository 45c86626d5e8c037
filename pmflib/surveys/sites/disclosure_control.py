"""Disclosure control of counts: random rounding to a base, which leaves no cell between 0 and the base."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray


def round_tables(tables: IntArray, offsets: IntArray, base: int, seed: int) -> IntArray:
    """Round counts of pairs at random to multiples of a base, without bias.

    Single counts are rounded first, and the table of each pair is multiplied by the ratios of rounded to exact single
    counts before it is rounded itself. Many tables together therefore tell no more about the number of samples with a
    level than its rounded count.

    Parameters
    ----------
    tables
        int64 of shape (n_folds, n_levels, n_levels), upper triangles: numbers of samples.
    offsets
        int64 of shape (n_variables + 1,).
    base
        Rounding base, at least 1.
    seed
        Secret of who publishes the counts, at least 0. Random numbers follow from it and from the counts, so that other
        counts are rounded by other random numbers.

    Returns
    -------
    Rounded tables of the same shape: each cell is a multiple of the base with the exact count as its expected value,
    and a count of 0 stays 0.

    References
    ----------
    Hundepool et al., Handbook on Statistical Disclosure Control, section 5.5, for random rounding and the ways to undo
    it. Fellegi (1975), "Controlled random rounding", Survey Methodology 1(2), for rounding the parts of a total
    together.
    """
    key = int.from_bytes(hashlib.sha256(np.ascontiguousarray(tables, "<i8").tobytes()).digest())
    rng = np.random.default_rng([seed, key])
    rounded = np.zeros_like(tables)
    singles = np.diagonal(tables, axis1=1, axis2=2).T
    parts = [slice(*ends) for ends in pairwise(offsets)]
    kept = np.concatenate([_round_together(singles[part], base, rng.random()) for part in parts])
    rounded[:, np.arange(len(kept)), np.arange(len(kept))] = kept.T
    exact = singles.sum(axis=1)
    scale = np.divide(kept.sum(axis=1), exact, out=np.zeros(len(exact)), where=exact > 0)
    for number, rows in enumerate(parts):
        for columns in parts[number + 1 :]:
            # folds are last, so that the sum over folds is rounded to the base as well
            cells = tables[:, rows, columns].transpose(1, 2, 0) * scale[rows, None, None]
            cells = _round_together(cells * scale[columns, None], base, rng.random())
            rounded[:, rows, columns] = cells.transpose(2, 0, 1)
    return rounded


def _round_together(cells: IntArray | FloatArray, base: int, start: float) -> IntArray:
    """Round the cells of a table, given a random start in [0, 1).

    Cumulative sums are rounded, as in systematic sampling: the sum of any run of neighbouring cells, such as a row,
    also differs from the exact sum by less than the base.
    """
    ends = np.floor(np.cumsum(cells, dtype=np.float64) / base + start)
    found: IntArray = np.diff(ends, prepend=0.0).astype(np.int64).reshape(cells.shape) * base
    return found
