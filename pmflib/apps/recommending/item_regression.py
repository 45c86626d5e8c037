"""Linear regression of each item on all others, from counts of pairs: a ranking of items without a model.

An item is a variable, and a sample has it if its answer is one of some levels. The regression needs the numbers of
samples that have both of two items, and counts of pairs contain them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from scipy.optimize import minimize_scalar

from pmflib.base.arrays import BoolArray, FloatArray, IntArray, list_owners, sum_pairs
from pmflib.base.constraints import at_least, check
from pmflib.base.machine import find_memory_limit
from pmflib.cluster.memory import MemoryPlan
from pmflib.counts.folds import count_in_samples
from pmflib.counts.pair_counts import PairCounts, count_pairs
from pmflib.counts.selection import list_levels
from pmflib.counts.zarr_tables import StoredTables
from pmflib.schema import Schema

N_FOLDS = 4
"""Every fourth fold of the counts judges the ridge parameter; samples are counted in as many folds."""
EXPONENTS = (0.0, 20.0)
"""Range in which the ridge parameter is searched, as powers of two: 1 to a million samples."""
EXPONENT_TOLERANCE = 0.5
"""Tolerance of the search in that range; errors and rankings hardly differ within a factor of two."""
N_MATRICES = 14
"""Matrices of items by items in memory at a time: the tables of folds, both parts as integers and as numbers, their
sum, and an inverse with its arguments and a product.
"""


@dataclass(frozen=True, eq=False)
class ItemRegression:
    """Values of items as linear functions of the other items that a sample has.

    Parameters
    ----------
    positions
        int64 of shape (n_items,): variables that are items.
    first
        int64 of shape (n_items,): first level of each item.
    holds
        bool of shape (n_levels,): levels with which a sample has an item.
    weights
        float64 of shape (n_items, n_items): entry (a, b) is the weight of item a in the value of item b, 0 for a = b.
    base
        float64 of shape (n_items,): value of each item for a sample with no other.
    shares
        float64 of shape (n_items,): share of the samples that have an item.
    ridge
        Ridge parameter, in samples.
    """

    positions: IntArray
    first: IntArray
    holds: BoolArray
    weights: FloatArray
    base: FloatArray
    shares: FloatArray
    ridge: float

    def predict(self, codes: IntArray) -> FloatArray:
        """Compute the value of each item: float64 (n_rows, n_items); rows without any item get the shares."""
        held = _find_held(codes, self.positions, self.first, self.holds)
        # a sparse product adds the weights of a row in order, so that no bit depends on the batch or on threads
        sparse: Any = scipy.sparse.csr_array(held.astype(np.float64))
        values: FloatArray = self.base + sparse @ self.weights
        values[~held.any(axis=1)] = self.shares
        return values


def regress_items(
    counts: PairCounts | StoredTables | IntArray, schema: Schema, holds: BoolArray
) -> ItemRegression:
    """Fit the regression of each item on the others.

    Parameters
    ----------
    counts
        Counts of pairs in memory or in a store, in at least two folds; or codes of shape (n_samples, n_variables).
    schema
        Variables of the counts.
    holds
        bool of shape (n_levels,): levels with which a sample has an item; variables without such a level are no items.
        Only of variables whose pairs are counted.

    Returns
    -------
    The regression with an intercept that minimises the squared errors of all items plus the ridge parameter times the
    squared weights. The parameter has the smallest squared error on every fourth fold, in a fit to the other folds.

    Raises
    ------
    PmfError
        If the counts have a single fold.
    MemoryPlanError
        If the matrices of items do not fit into memory.

    References
    ----------
    Steck (2019), "Embarrassingly shallow autoencoders for sparse data", equation 8. The intercept is an addition: where
    items depend little on each other, values then tend to the shares.
    """
    levels = np.flatnonzero(holds)
    positions, starts = np.unique(list_owners(schema.offsets)[levels], return_index=True)
    first, n_items = schema.offsets[positions], positions.size
    parts = {f"matrices of {n_items:,} by {n_items:,} items": 8 * N_MATRICES * n_items**2}
    own = counts.table_schema if isinstance(counts, StoredTables) else schema
    if not isinstance(counts, np.ndarray):
        parts["a table of pairs of levels and its copy"] = 16 * own.n_levels**2
    remedy = "Leave out items with few answers by at_least (--at-least)."
    MemoryPlan("The regression of items", parts, remedy).check(find_memory_limit())
    if isinstance(counts, np.ndarray):
        held = _find_held(counts, positions, first, holds)
        # an item that a sample has is level 0 of a variable of one level
        counts = count_pairs(held.astype(np.int8) - 1, [1] * n_items, n_folds=N_FOLDS)
        levels, starts = np.arange(n_items), np.arange(n_items)
    wanted = at_least(2, "as held-out folds choose the ridge parameter: count with n_folds=4")
    check(wanted, n_folds=counts.n_folds)
    is_judge = np.arange(counts.n_folds) % N_FOLDS == 1
    sums: Any = np.zeros((2, n_items, n_items))
    offsets = np.append(starts, levels.size)
    if isinstance(counts, StoredTables):
        levels = np.searchsorted(list_levels(schema, counts.counted), levels)
    for fold, part in enumerate(is_judge.astype(int).tolist()):
        table = counts.tables[fold] if isinstance(counts, PairCounts) else counts.read(fold)
        sums[part] += sum_pairs(table[np.ix_(levels, levels)], offsets)
    rows = counts.n_rows if counts.weights is None else np.array(counts.weights.totals)
    rows = np.array([rows[~is_judge].sum(), rows[is_judge].sum()])
    found: Any = count_in_samples([sums, rows], int(counts.n_rows.sum()), counts.weights)[0]
    both = found[0] + np.triu(found[0], 1).transpose(0, 2, 1)
    ridge, total, n_samples = _choose_ridge(both, found[1]), both.sum(axis=0), found[1].sum()
    shares = np.diag(total) / max(n_samples, 1)
    inverse = _invert(_centre(total, n_samples, shares), ridge)
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0.0)
    base = shares - shares @ weights
    return ItemRegression(positions, first, holds, weights, base, shares, ridge)


def _choose_ridge(counts: FloatArray, n_samples: IntArray) -> float:
    """Choose the ridge parameter by the squared error of all items on the second part, in fits to the first."""
    shares = np.diag(counts[0]) / max(n_samples[0], 1)
    fitted, judged = (_centre(*each, shares) for each in zip(counts, n_samples, strict=True))

    def find_error(exponent: float) -> float:
        # residuals are the centred samples times P / diag(P), where P is the inverse
        inverse = _invert(fitted, 2.0**exponent)
        squares = np.einsum("ij,ij->j", inverse, judged @ inverse)
        return float((squares / np.diag(inverse) ** 2).sum())

    found: Any = minimize_scalar(
        find_error, bounds=EXPONENTS, method="bounded", options={"xatol": EXPONENT_TOLERANCE}
    )
    return float(2.0**found.x)


def _centre(counts: FloatArray, n_samples: float, shares: FloatArray) -> FloatArray:
    """Turn counts of pairs of items into sums of products of deviations from shares."""
    crossed = np.outer(np.diag(counts), shares)
    return counts - crossed - crossed.T + n_samples * np.outer(shares, shares)


def _invert(counts: FloatArray, ridge: float) -> FloatArray:
    return np.asarray(np.linalg.inv(counts + ridge * np.eye(len(counts))), np.float64)


def _find_held(
    codes: IntArray, positions: IntArray, first: IntArray, holds: BoolArray
) -> BoolArray:
    """Find the items that rows have: bool of shape (n_rows, n_items)."""
    own = codes[:, positions]
    return (own >= 0) & holds[first + np.maximum(own, 0)]
