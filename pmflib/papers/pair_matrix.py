"""The matrix of pairwise marginals used by pairwise solvers: validation, splits into two sides, and starting values."""

from __future__ import annotations

import numpy as np

from pmflib.base.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    Parameters,
    normalise_blocks,
    repeat_blocks,
    spread_evenly,
    sum_pairs,
)
from pmflib.base.constraints import check_shapes
from pmflib.base.errors import RankError, SchemaError
from pmflib.base.pseudo_counts import check_nonnegative

SUM_TOLERANCE = 1e-6
"""Tolerance for block sums and for symmetry; it allows for rounding."""


def check_pairs(marginals: FloatArray, offsets: IntArray, observed: BoolArray) -> None:
    """Check that marginals are as described in `fit_spa`.

    Raises
    ------
    SchemaError
        If ``offsets`` does not rise from 0, a shape does not follow from it, ``observed`` or ``marginals`` is not
        symmetric, or a block does not sum to 1 where observed and to 0 elsewhere.
    PmfError
        If a marginal is negative or not finite.
    """
    n_levels, n_variables = int(offsets[-1]), offsets.size - 1
    if n_variables < 1 or offsets[0] != 0 or (np.diff(offsets) < 1).any():
        raise SchemaError(f"offsets is {offsets.tolist()}; must rise from 0, a step per variable")
    check_shapes(
        "as follows from offsets",
        marginals=(marginals, (n_levels, n_levels)),
        observed=(observed, (n_variables, n_variables)),
    )
    if np.diagonal(observed).any() or not np.array_equal(observed, observed.T):
        raise SchemaError("observed must be symmetric and False on its diagonal")
    check_nonnegative("marginals", marginals, marginals.shape)
    # in place: the matrix of a large schema needs much of the memory
    difference = marginals - marginals.T
    if np.abs(difference, out=difference).max() > SUM_TOLERANCE:
        raise SchemaError("marginals is not symmetric; block (k, j) is block (j, k) transposed")
    sums = sum_pairs(marginals, offsets)
    expected = np.where(np.eye(n_variables, dtype=np.bool_), np.rint(sums).clip(0, 1), observed)
    wrong = np.abs(sums - expected) > SUM_TOLERANCE
    if wrong.any():
        j, k = (int(i) for i in np.argwhere(wrong)[0])
        raise SchemaError(
            f"marginals block ({j}, {k}) sums to {sums[j, k]}, not {expected[j, k]:g}; divide the "
            "counts of an observed pair by its support and leave other pairs 0"
        )


def read_singles(marginals: FloatArray, offsets: IntArray) -> FloatArray:
    """Return the PMF of each variable from the diagonal blocks; uniform if it was never observed.

    Returns
    -------
    float64 of shape (n_levels,).
    """
    return normalise_blocks(np.diagonal(marginals), offsets, spread_evenly(offsets))


def find_isolated(observed: BoolArray, offsets: IntArray) -> BoolArray:
    """Return whether each level's variable has no observed pair: bool of shape (n_levels,)."""
    return repeat_blocks(np.asarray(~observed.any(axis=1)), offsets)


def start_random(
    singles: FloatArray, offsets: IntArray, *, rank: int, rng: np.random.Generator
) -> Parameters:
    """Draw starting values: the variables' own PMFs times independent noise for each latent state.

    Parameters
    ----------
    singles
        float64 of shape (n_levels,), PMF of each variable.
    offsets
        int64 of shape (n_variables + 1,).
    rank
        Number of latent states, at least 1.
    rng
        Random generator for the noise, uniform on [0.5, 1.5].

    Returns
    -------
    Prior (rank,), uniform, and factors (n_levels, rank); the levels of each variable sum to 1 in every column.
    """
    factors = singles[:, None] * rng.uniform(0.5, 1.5, (singles.size, rank))
    return np.full(rank, 1.0 / rank), normalise_blocks(factors, offsets, singles[:, None])


def open_start(
    parameters: Parameters, toward: FloatArray, *, prior_share: float, factor_share: float
) -> Parameters:
    """Mix starting values with a uniform prior and positive PMFs.

    Parameters
    ----------
    parameters
        Prior (rank,) and factors (n_levels, rank).
    toward
        float64, broadcast to the shape of the factors: a PMF for each variable, such as its own, (n_levels, 1), or
        perturbed PMFs, which also separate identical states.
    prior_share, factor_share
        Weights of the mixture, in [0, 1].

    Returns
    -------
    Prior and factors of the same shapes.
    """
    prior, factors = parameters
    opened = (1 - prior_share) * prior + prior_share / prior.size
    return opened, (1 - factor_share) * factors + factor_share * toward


def list_splits(
    cardinalities: IntArray, observed: BoolArray, rank: int
) -> list[tuple[str, BoolArray]]:
    """List named splits with at least ``rank`` levels on both sides.

    The candidates are the first half of the levels, every other variable, and a cut through many observed pairs, each
    also with the sides exchanged, since anchors are selected among the levels of the second side. If none is suitable,
    both orders of the most even split are returned.

    Parameters
    ----------
    cardinalities
        int64 of shape (n_variables,), number of levels of each variable, at least 1; at least two variables.
    observed
        bool of shape (n_variables, n_variables), symmetric, False on the diagonal.
    rank
        Minimum number of levels on each side.

    Returns
    -------
    Names and bool arrays of shape (n_variables,), True for the first side, without duplicates.

    Raises
    ------
    RankError
        If no split has ``rank`` levels on both sides.
    """
    middles = np.cumsum(cardinalities) - cardinalities / 2
    natural = {
        "first half": middles <= cardinalities.sum() / 2,
        "every other": np.arange(cardinalities.size) % 2 == 0,
        "observed cut": cut_observed_pairs(cardinalities, observed),
    }
    fitting = _keep_fitting(natural, cardinalities, rank)
    if not fitting:
        even = split_evenly(cardinalities)
        fitting = _keep_fitting({"most even": even}, cardinalities, rank)
    if not fitting:
        limit = int(cardinalities[even].sum())
        raise RankError(
            f"rank is {rank}, above {limit}, the levels on the smaller side of the most even "
            f"split; lower rank to {limit} or fit more variables"
        )
    return fitting


def cut_observed_pairs(cardinalities: IntArray, observed: BoolArray) -> BoolArray:
    """Split the variables greedily so that many observed pairs cross the cut.

    The variable with most partners is placed first. The next is always the one whose placed partners lie most on one
    side, and it is placed on the other. A tie goes to the side with fewer levels. A connected bipartite graph of pairs
    is cut exactly.

    Parameters
    ----------
    cardinalities
        int64 of shape (n_variables,), at least 1.
    observed
        bool of shape (n_variables, n_variables), symmetric, False on the diagonal.

    Returns
    -------
    bool of shape (n_variables,), True for the first side.
    """
    n_variables = cardinalities.size
    degrees = observed.sum(axis=1)
    # Placed partners on the second side minus those on the first; a positive value favours the first side.
    pull = np.zeros(n_variables, np.int64)
    first = np.zeros(n_variables, np.bool_)
    assigned = first.copy()
    lead = 0
    for _ in range(n_variables):
        urgency = np.where(assigned, -1, np.abs(pull) * n_variables + degrees)
        variable = int(np.argmax(urgency))
        first[variable] = pull[variable] > 0 or (pull[variable] == 0 and lead <= 0)
        assigned[variable] = True
        sign = 1 if first[variable] else -1
        pull -= sign * observed[variable]
        lead += sign * int(cardinalities[variable])
    return first


def split_evenly(cardinalities: IntArray) -> BoolArray:
    """Split the variables so that the smaller side has as many levels as possible.

    Parameters
    ----------
    cardinalities
        int64 of shape (n_variables,), at least 1.

    Returns
    -------
    bool of shape (n_variables,), True for the smaller side.

    Notes
    -----
    Exact, by subset sums: n_variables * n_levels bits.
    """
    # Bit s of entry j is set if some of the first j variables have s levels in total.
    sums = [1]
    for cardinality in cardinalities:
        sums.append(sums[-1] | sums[-1] << int(cardinality))
    half = int(cardinalities.sum()) // 2
    target = (sums[-1] & ((1 << (half + 1)) - 1)).bit_length() - 1
    first = np.zeros(cardinalities.size, np.bool_)
    for variable in range(cardinalities.size - 1, -1, -1):
        if not sums[variable] >> target & 1:
            first[variable] = True
            target -= int(cardinalities[variable])
    return first


def _keep_fitting(
    splits: dict[str, BoolArray], cardinalities: IntArray, rank: int
) -> list[tuple[str, BoolArray]]:
    """Keep each distinct split, and its exchange, if both sides have ``rank`` levels."""
    kept: dict[bytes, tuple[str, BoolArray]] = {}
    for name, first in splits.items():
        sides = cardinalities[first].sum(), cardinalities[~first].sum()
        if min(sides) >= rank:
            kept.setdefault(first.tobytes(), (name, first))
            kept.setdefault((~first).tobytes(), (f"{name}, exchanged", ~first))
    return list(kept.values())
