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

from pmflib.cluster.memory import MemoryPlan
from pmflib.core.arrays import BoolArray, FloatArray, IntArray, list_owners, sum_pairs
from pmflib.core.errors import PmfError, SchemaError
from pmflib.core.machine import find_memory_limit
from pmflib.counting.folds import count_in_samples
from pmflib.counting.pair_counts import PairCounts, count_pairs
from pmflib.counting.stored_tables import StoredTables
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
    shares
        float64 of shape (n_items,): share of the samples that have an item.
    ridge
        Ridge parameter, in samples.
    """

    positions: IntArray
    first: IntArray
    holds: BoolArray
    weights: FloatArray
    shares: FloatArray
    ridge: float

    def predict(self, codes: IntArray) -> FloatArray:
        """Compute the value of each item: float64 (n_rows, n_items); rows without any item get the shares."""
        held = _find_held(codes, self.positions, self.first, self.holds)
        # a sparse product adds the weights of a row in order, so that no bit depends on the batch or on threads
        values: Any = scipy.sparse.csr_array(held.astype(np.float64)) @ self.weights
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

    Returns
    -------
    The regression that minimises the squared errors of all items plus the ridge parameter times the squared weights.
    The parameter has the smallest squared error on every fourth fold, in a fit to the other folds.

    Raises
    ------
    SchemaError
        If the counts have another schema.
    PmfError
        If the counts have a single fold.
    MemoryPlanError
        If the matrices of items do not fit into memory.

    References
    ----------
    Steck (2019), "Embarrassingly shallow autoencoders for sparse data", equation 8.
    """
    levels = np.flatnonzero(holds)
    positions, starts = np.unique(list_owners(schema.offsets)[levels], return_index=True)
    first, n_items = schema.offsets[positions], positions.size
    parts = {f"matrices of {n_items:,} by {n_items:,} items": 8 * N_MATRICES * n_items**2}
    if not isinstance(counts, np.ndarray):
        parts["a table of pairs of levels and its copy"] = 16 * schema.n_levels**2
    remedy = "Leave out items with few answers by at_least (--at-least)."
    MemoryPlan("The regression of items", parts, remedy).check(find_memory_limit())
    if isinstance(counts, np.ndarray):
        held = _find_held(counts, positions, first, holds)
        # an item that a sample has is level 0 of a variable of one level
        counts = count_pairs(held.astype(np.int8) - 1, [1] * n_items, n_folds=N_FOLDS)
        levels, starts = np.arange(n_items), np.arange(n_items)
    elif counts.schema.digest != schema.digest:
        raise SchemaError("counts have another schema than the model; give counts of its variables")
    if counts.n_folds < 2:
        raise PmfError(
            "counts have one fold, and held-out folds choose the ridge parameter; count with n_folds=4 or more"
        )
    sums, offsets = np.zeros((2, n_items, n_items), np.int64), np.append(starts, levels.size)
    for fold in range(counts.n_folds):
        table = counts.tables[fold] if isinstance(counts, PairCounts) else counts.read(fold)
        sums[int(fold % N_FOLDS == 1)] += sum_pairs(table[np.ix_(levels, levels)], offsets)
    (upper,), n_samples = count_in_samples([sums], int(counts.n_rows.sum()), counts.weights)
    both = upper + np.triu(upper, 1).transpose(0, 2, 1).astype(np.float64)
    ridge, total = _choose_ridge(*both), both.sum(axis=0)
    inverse = _invert(total, ridge)
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0.0)
    shares = np.diag(total) / max(n_samples, 1)
    return ItemRegression(positions, first, holds, weights, shares, ridge)


def _choose_ridge(fitted: FloatArray, judged: FloatArray) -> float:
    """Choose the ridge parameter by the squared error of all items on the second part, in fits to the first."""

    def find_error(exponent: float) -> float:
        # residuals are the samples times P / diag(P), where P is the inverse
        inverse = _invert(fitted, 2.0**exponent)
        squares = np.einsum("ij,ij->j", inverse, judged @ inverse)
        return float((squares / np.diag(inverse) ** 2).sum())

    found: Any = minimize_scalar(
        find_error, bounds=EXPONENTS, method="bounded", options={"xatol": EXPONENT_TOLERANCE}
    )
    return float(2.0**found.x)


def _invert(counts: FloatArray, ridge: float) -> FloatArray:
    inverse: Any = np.linalg.inv(counts + ridge * np.eye(len(counts)))
    return inverse


def _find_held(
    codes: IntArray, positions: IntArray, first: IntArray, holds: BoolArray
) -> BoolArray:
    """Find the items that rows have: bool of shape (n_rows, n_items)."""
    own = codes[:, positions]
    return (own >= 0) & holds[first + np.maximum(own, 0)]
