"""Distances between an estimate and the truth: factors up to permutation, joint tensors, values and labels."""

from functools import reduce
from itertools import pairwise

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.constraints import Interval, check, check_shapes, check_size
from pmflib.base.errors import PmfError, RankError, SchemaError

MAX_JOINT_CELLS = 10_000_000
"""Default maximum number of cells of a joint distribution in `relative_error`."""


def _check_pair(
    prior_a: FloatArray, factors_a: FloatArray, prior_b: FloatArray, factors_b: FloatArray
) -> None:
    hint = "take both from one model"
    for prior, factors in ((prior_a, factors_a), (prior_b, factors_b)):
        check_shapes(
            hint, RankError, prior=(prior, ("rank",)), factors=(factors, ("n_levels", "rank"))
        )
    hint = "only models of one schema can be compared"
    check_shapes(hint, factors=(factors_b, (len(factors_a), "rank")))


def match_factors(
    prior_a: FloatArray, factors_a: FloatArray, prior_b: FloatArray, factors_b: FloatArray
) -> IntArray:
    """Match the latent states of one model to those of another.

    Parameters
    ----------
    prior_a, prior_b
        Shapes (rank_a,) and (rank_b,).
    factors_a, factors_b
        Shapes (n_levels, rank_a) and (n_levels, rank_b).

    Returns
    -------
    int64 of shape (rank_a,): ``factors_b[:, match[f]]`` matches ``factors_a[:, f]``. If the ranks
    differ, all states of the smaller model are matched; an unmatched state of `a` has -1.

    Raises
    ------
    RankError, SchemaError
        If shapes do not agree.

    Notes
    -----
    Minimises the summed squared distance between columns, with the prior as an additional entry of each.

    Examples
    --------
    >>> import numpy as np
    >>> prior, factors = np.array([0.7, 0.3]), np.array([[0.9, 0.2], [0.1, 0.8]])
    >>> match_factors(prior, factors, prior[::-1], factors[:, ::-1]).tolist()
    [1, 0]
    """
    _check_pair(prior_a, factors_a, prior_b, factors_b)
    columns_a, columns_b = np.vstack([prior_a, factors_a]), np.vstack([prior_b, factors_b])
    squares_a, squares_b = np.sum(columns_a**2, axis=0), np.sum(columns_b**2, axis=0)
    cost = squares_a[:, None] + squares_b - 2 * columns_a.T @ columns_b
    # imported on first use: SciPy takes longer to import than the rest of this package
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(cost)
    matched = np.full(prior_a.size, -1, np.int64)
    matched[rows] = columns
    return matched


def _align(
    estimate_prior: FloatArray,
    estimate_factors: FloatArray,
    true_prior: FloatArray,
    true_factors: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Reorder the states of the estimate to match those of the truth."""
    if estimate_prior.size != true_prior.size:
        raise RankError(
            f"the estimate has rank {estimate_prior.size}, the truth {true_prior.size}; this error "
            "is defined for one rank: refit, or compare what match_factors pairs"
        )
    order = match_factors(true_prior, true_factors, estimate_prior, estimate_factors)
    return estimate_prior[order], estimate_factors[:, order]


def factor_mse(
    estimate_prior: FloatArray,
    estimate_factors: FloatArray,
    true_prior: FloatArray,
    true_factors: FloatArray,
    n_variables: int,
) -> float:
    """Compute the squared error of prior and factors, after matching the latent states.

    Parameters
    ----------
    estimate_prior, true_prior
        Shape (rank,).
    estimate_factors, true_factors
        Shape (n_levels, rank).
    n_variables
        Number of variables.

    Returns
    -------
    ||prior - estimate||^2 + ||factors - estimate||_F^2 / (n_variables * rank), >= 0.

    Raises
    ------
    RankError, SchemaError
        If shapes do not fit together.

    References
    ----------
    Ibrahim and Fu (2021), IEEE Trans. Signal Processing, section V: the plain formula.
    """
    hint = "the number of variables, not of levels"
    check(Interval(1, len(true_factors), hint=hint), SchemaError, n_variables=n_variables)
    prior, factors = _align(estimate_prior, estimate_factors, true_prior, true_factors)
    squares = float(np.sum((factors - true_factors) ** 2))
    return float(np.sum((prior - true_prior) ** 2)) + squares / (n_variables * prior.size)


def published_factor_mse(
    estimate_prior: FloatArray,
    estimate_factors: FloatArray,
    true_prior: FloatArray,
    true_factors: FloatArray,
    offsets: IntArray,
) -> float:
    """Compute `factor_mse` as in the published Tables I to III, including their mistake; only to compare with them.

    Parameters
    ----------
    estimate_prior, true_prior
        Shape (rank,).
    estimate_factors, true_factors
        Shape (n_levels, rank).
    offsets
        int64 of shape (n_variables + 1,).

    Returns
    -------
    The error, >= 0. It is not 0 for a perfect estimate, because the first variable's factor is
    compared with the true factor times the prior.

    Raises
    ------
    RankError, SchemaError
        If shapes do not fit together.

    References
    ----------
    Ibrahim and Fu (2021), IEEE Trans. Signal Processing, Tables I to III and the released code.
    """
    _check_pair(estimate_prior, estimate_factors, true_prior, true_factors)
    hint = "take both from one schema"
    check_shapes(hint, true_factors=(true_factors, (int(offsets[-1]), "rank")))
    prior, factors = _align(estimate_prior, estimate_factors, true_prior, true_factors)
    slipped = true_factors.copy()
    slipped[: offsets[1]] *= true_prior
    squares = float(np.sum((factors - slipped) ** 2))
    return float(np.sum((prior - true_prior) ** 2)) + squares / ((offsets.size - 1) * prior.size)


def _spread(factors: FloatArray, offsets: IntArray) -> FloatArray:
    """Compute the column-wise Kronecker product of the variables' factors, shape (cells, rank)."""
    blocks = [factors[first:last] for first, last in pairwise(offsets)]
    start = np.ones((1, factors.shape[1]))
    return reduce(
        lambda left, right: (left[:, None] * right).reshape(-1, left.shape[1]), blocks, start
    )


def relative_error(
    estimate_prior: FloatArray,
    estimate_factors: FloatArray,
    true_prior: FloatArray,
    true_factors: FloatArray,
    offsets: IntArray,
    *,
    max_cells: int = MAX_JOINT_CELLS,
) -> float:
    """Compute the distance between two full joint distributions, relative to the norm of the true one.

    Parameters
    ----------
    estimate_prior, true_prior
        Shapes (rank,); the ranks may differ.
    estimate_factors, true_factors
        Shapes (n_levels, rank).
    offsets
        int64 of shape (n_variables + 1,).
    max_cells
        Maximum number of cells of the joint distribution.

    Returns
    -------
    ||truth - estimate||_F / ||truth||_F over all cells, >= 0.

    Raises
    ------
    MemoryPlanError
        If the joint distribution has more than `max_cells` cells.
    RankError, SchemaError
        If shapes do not fit together.

    Notes
    -----
    Memory is 16 bytes per cell. Published tables divide by the norm of the estimate: swap the two
    models to reproduce them.
    """
    _check_pair(estimate_prior, estimate_factors, true_prior, true_factors)
    hint = "take both from one schema"
    check_shapes(hint, true_factors=(true_factors, (int(offsets[-1]), "rank")))
    cells = reduce(lambda product, size: product * int(size), np.diff(offsets), 1)
    hint = "compare factors with factor_mse, fewer variables, or raise max_cells"
    check_size(cells, max_cells, "cells in the joint distribution", hint)
    half = int(np.searchsorted(np.cumsum(np.log(np.diff(offsets))), np.log(cells) / 2)) + 1
    near, far = offsets[: half + 1], offsets[half:]
    truth = (_spread(true_factors, near) * true_prior) @ _spread(true_factors, far).T
    scale = float(np.linalg.norm(truth))
    truth -= (_spread(estimate_factors, near) * estimate_prior) @ _spread(estimate_factors, far).T
    return float(np.linalg.norm(truth)) / scale


def _check_same_shape(predicted: IntArray | FloatArray, actual: IntArray | FloatArray) -> None:
    check_shapes("align them entry by entry first", predicted=(predicted, actual.shape))
    if actual.size == 0:
        raise PmfError("predicted and actual are empty, the score needs at least 1 entry")


def accuracy(predicted: IntArray, actual: IntArray) -> float:
    """Return the share of entries predicted exactly, in [0, 1]; both arrays must have the same shape."""
    _check_same_shape(predicted, actual)
    return float(np.mean(predicted == actual))


def rmse(predicted: IntArray | FloatArray, actual: IntArray | FloatArray) -> float:
    """Return the root mean squared error, in the units of the values; both arrays must have the same shape."""
    _check_same_shape(predicted, actual)
    return float(np.sqrt(np.mean(np.subtract(predicted, actual, dtype=np.float64) ** 2)))


def mae(predicted: IntArray | FloatArray, actual: IntArray | FloatArray) -> float:
    """Return the mean absolute error, in the units of the values; both arrays must have the same shape."""
    _check_same_shape(predicted, actual)
    return float(np.mean(np.abs(np.subtract(predicted, actual, dtype=np.float64))))
