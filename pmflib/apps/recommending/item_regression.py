"""Linear regression of each item on all others, from sums over samples: a ranking of items without a model.

An item is a variable, and its worth to a sample is a small number, 0 where it is not answered. The regression needs the
sums of products of the worths of two items, for all pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pmflib.base.arrays import BoolArray, FloatArray, IntArray

N_FOLDS = 4
"""One of so many folds of samples judges the ridge parameter."""
EXPONENTS = range(21)
"""Ridge parameters that are tried, as powers of two."""
RIDGE = 512.0
"""Ridge parameter where no sample can judge."""
LEAST_RIDGE = 2.0**-17
"""Least ridge parameter by the largest sum of a row, at which sums in float32 are still factored."""
N_TRIED = 1500
"""Items among which parameters are tried, the most answered: the best parameter is the same for 400, 800 and all 1,682
of MovieLens 100K, and the time grows with the cube of their number.
"""
N_JUDGES = 2000
"""Maximum number of samples that judge."""
HIDDEN = 0.2
"""Share of the answers of judges that are hidden."""
TOP = 20
"""Items of each judge that are looked at."""
MIN_ANSWERS = 5
"""Items with fewer answers are not regressed: rankings of MovieLens 100K do not differ with 1, 3, 5 or 10."""
N_MATRICES = 2
"""Matrices of items by items in memory at a time: the sums, which become the weights in place, and a copy that is sent
to workers.
"""

Worths = Any
"""Worth of items to samples, `scipy.sparse.csr_array` of float32 of shape (n_samples, n_variables), zeros left out."""


@dataclass(frozen=True, eq=False)
class ItemRegression:
    """Values of items as linear functions of the worths of the other items.

    Parameters
    ----------
    positions
        int64 of shape (n_items,): variables that are regressed.
    weights
        float32 of shape (n_items, n_items): entry (a, b) is the weight of item a in the value of item b, 0 for a = b.
    means
        float32 of shape (n_variables,): mean worth over all samples.
    ridge
        Ridge parameter.
    n_left_out
        Number of items with enough answers for which there is no memory.
    """

    positions: IntArray
    weights: FloatArray
    means: FloatArray
    ridge: float
    n_left_out: int = 0

    def predict(self, worths: Worths) -> FloatArray:
        """Compute the value of each variable: float32 (n_rows, n_variables).

        Items that are not regressed, and all items of rows without any worth, have their means.
        """
        values = np.tile(self.means, (worths.shape[0], 1))
        own = worths[:, self.positions]
        rows = np.flatnonzero(np.diff(own.indptr))
        # a sparse product adds the weights of a row in order, so that no bit depends on the batch or on threads
        values[np.ix_(rows, self.positions)] = own[rows] @ self.weights
        return values


def regress_items(worths: Worths, is_judge: BoolArray, memory: int) -> ItemRegression:
    """Fit the regression of each item on the others.

    Parameters
    ----------
    worths
        Worth of items to samples.
    is_judge
        bool of shape (n_samples,): samples that are held out to choose the ridge parameter.
    memory
        Bytes for matrices of items by items. If they do not suffice, the most answered items are regressed.

    Returns
    -------
    The regression that minimises the squared errors of all items plus the ridge parameter times the squared weights.
    The parameter is the one with the best ranking of the hidden answers of judges, by a fit to the other samples.

    References
    ----------
    Steck (2019), "Embarrassingly shallow autoencoders for sparse data", equation 8.
    """
    n_samples, n_variables = worths.shape
    n_answers = np.bincount(worths.indices, minlength=n_variables)
    most = math.isqrt(max(0, memory) // (N_MATRICES * 4))
    able = np.flatnonzero(n_answers >= MIN_ANSWERS)
    ordered = able[np.argsort(-n_answers[able], kind="stable")][:most]
    totals = np.bincount(worths.indices, weights=worths.data, minlength=n_variables)
    ridge = _choose_ridge(worths[:, np.sort(ordered[:N_TRIED])], is_judge)
    positions = np.sort(ordered)
    sums = _sum_products(worths[:, positions])
    ridge = max(ridge, _find_least(sums))
    return ItemRegression(
        positions,
        _solve(sums, ridge),
        (totals / max(n_samples, 1)).astype(np.float32),
        ridge,
        able.size - positions.size,
    )


def _choose_ridge(worths: Worths, is_judge: BoolArray) -> float:
    """Choose the ridge parameter by the NDCG of the hidden answers of highest worth."""
    judges = np.flatnonzero(is_judge)
    given = worths[judges[:: -(-judges.size // N_JUDGES) or 1]]
    is_hidden = np.random.default_rng(0).random(given.nnz) < HIDDEN
    highest = given.data == worths.data.max(initial=0)
    known, wanted = given.copy(), given.copy()
    known.data, wanted.data = given.data * ~is_hidden, (highest & is_hidden).astype(np.float32)
    is_wanted = wanted.toarray() > 0
    n_wanted = is_wanted.sum(axis=1)
    if not n_wanted.any():
        return RIDGE
    sums = _sum_products(worths[~is_judge])
    least, is_known = _find_least(sums), known.toarray() > 0
    gains = 1 / np.log2(np.arange(2, TOP + 2))
    best = np.append(np.inf, np.cumsum(gains))[np.minimum(n_wanted, TOP)]
    reached = []
    for ridge in (2.0**exponent for exponent in EXPONENTS if 2.0**exponent >= least):
        values = np.where(is_known, -np.inf, known @ _solve(sums.copy(), ridge))
        items, ranks = find_best(values, TOP)
        hits = np.take_along_axis(is_wanted, items, axis=1) & (ranks > 0)
        reached.append((float((hits @ gains[: items.shape[1]] / best).sum()), -ridge))
    # the smallest of equally good ones
    return -max(reached, default=(0.0, -RIDGE))[1]


def find_best(
    values: FloatArray, top: int, groups: IntArray | None = None, most_per_group: int | None = None
) -> tuple[IntArray, IntArray]:
    """Find the items with the largest values of each row, best first.

    Parameters
    ----------
    values
        Shape (n_rows, n_items); -inf leaves out an item.
    top
        Number of items, at least 1; fewer if there are fewer.
    groups
        int32 of shape (n_items,): group of each item, -1 for none.
    most_per_group
        Maximum number of items of a group; None for no maximum.

    Returns
    -------
    Items, int32, and their ranks from 1, 0 for none; both of shape (n_rows, top).
    """
    from pmflib.apps.recommending.kernels.recommending import select_best

    top = min(top, values.shape[1])
    groups = np.full(values.shape[1], -1, np.int32) if groups is None else groups
    items = np.zeros((len(values), top), np.int32)
    n_found = np.empty(len(values), np.int64)
    select_best(values, groups, most_per_group or top, items, n_found)
    ranks = np.arange(1, top + 1)
    return items, np.where(ranks <= n_found[:, None], ranks, 0)


def _sum_products(worths: Worths) -> FloatArray:
    """Sum the products of the worths of pairs of items over samples: the upper triangle of float32 (n_items, n_items).

    Worths are small integers, whose sums are exact in any order up to 2**24.
    """
    from pmflib.apps.recommending.kernels.recommending import add_products

    worths.sort_indices()
    sums = np.zeros((worths.shape[1],) * 2, np.float32)
    add_products(worths.indptr, worths.indices, worths.data, sums)
    return sums


def _find_least(sums: FloatArray) -> float:
    """Return the least ridge parameter for an upper triangle of sums."""
    rows = sums.sum(axis=0, dtype=np.float64) + sums.sum(axis=1, dtype=np.float64) - np.diag(sums)
    return max(1.0, LEAST_RIDGE * float(rows.max(initial=0)))


def _solve(sums: FloatArray, ridge: float) -> FloatArray:
    """Turn an upper triangle of sums into the weights of the regression, in place."""
    from scipy.linalg.lapack import spotrf, spotri
    from threadpoolctl import threadpool_limits

    from pmflib.apps.recommending.kernels.recommending import scale_columns

    if not sums.size:
        return sums
    sums.flat[:: len(sums) + 1] += np.float32(ridge)
    # bits of a factorisation depend on the number of threads
    with threadpool_limits(1):
        factor, _ = spotrf(sums.T, lower=1, clean=0, overwrite_a=1)
        inverse, _ = spotri(factor, lower=1, overwrite_c=1)
    weights: FloatArray = inverse.T
    scale_columns(weights, np.diag(weights).copy())
    return weights
