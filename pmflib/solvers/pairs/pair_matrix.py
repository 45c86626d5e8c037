"""The matrix of pairwise marginals that pairwise solvers take: its splits in two sides, and starts from it."""

from __future__ import annotations

import numpy as np

from pmflib.core.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    Parameters,
    normalise_blocks,
    repeat_blocks,
    spread_evenly,
    sum_pairs,
)
from pmflib.core.errors import RankError, SchemaError
from pmflib.solvers import check_nonnegative

SUM_TOLERANCE = 1e-6
"""How far a block's sum may be from 1, and an entry from that of the pair exchanged: it bounds rounding."""


def check_pairs(marginals: FloatArray, offsets: IntArray, observed: BoolArray) -> None:
    """Refuse marginals that are not what `fit_spa` describes.

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
    square = (n_variables, n_variables)
    if marginals.shape != (n_levels, n_levels) or observed.shape != square:
        raise SchemaError(
            f"marginals has shape {marginals.shape} and observed {observed.shape}, not "
            f"{(n_levels, n_levels)} and {square}, which follow from offsets"
        )
    if np.diagonal(observed).any() or not np.array_equal(observed, observed.T):
        raise SchemaError("observed must be symmetric and False on its diagonal")
    check_nonnegative("marginals", marginals, marginals.shape)
    # in place: the matrix of a large schema takes much of the memory
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
    """PMF of each variable, from the diagonal blocks; uniform where it was never seen.

    Returns
    -------
    float64 of shape (n_levels,).
    """
    return normalise_blocks(np.diagonal(marginals), offsets, spread_evenly(offsets))


def find_isolated(observed: BoolArray, offsets: IntArray) -> BoolArray:
    """Whether each level's variable is in no observed pair: bool of shape (n_levels,)."""
    return repeat_blocks(np.asarray(~observed.any(axis=1)), offsets)


def start_random(
    singles: FloatArray, offsets: IntArray, *, rank: int, rng: np.random.Generator
) -> Parameters:
    """Start every latent state at the variables' own PMFs times independent noise.

    Parameters
    ----------
    singles
        float64 of shape (n_levels,), PMF of each variable.
    offsets
        int64 of shape (n_variables + 1,).
    rank
        Number of latent states, at least 1.
    rng
        Source of the noise, uniform on [0.5, 1.5].

    Returns
    -------
    Prior (rank,), uniform, and factors (n_levels, rank); every variable's rows sum to 1 per column.
    """
    factors = singles[:, None] * rng.uniform(0.5, 1.5, (singles.size, rank))
    return np.full(rank, 1.0 / rank), normalise_blocks(factors, offsets, singles[:, None])


def open_start(
    parameters: Parameters, toward: FloatArray, *, prior_share: float, factor_share: float
) -> Parameters:
    """Mix a share of the uniform prior and of positive PMFs into a start.

    Parameters
    ----------
    parameters
        Prior (rank,) and factors (n_levels, rank).
    toward
        float64, broadcast to the shape of the factors: PMFs of every variable, such as its own, (n_levels, 1), or
        perturbed ones, which also separate states that came out equal.
    prior_share, factor_share
        Shares of the mixture, in [0, 1].

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
    """Name the splits worth a try that leave ``rank`` levels on both sides.

    The first half of the levels, every other variable and a cut through many observed pairs, each
    also with the sides exchanged because anchors are sought among the second side's levels.
    Where none of them will do, the two orders of the most even split.

    Parameters
    ----------
    cardinalities
        int64 of shape (n_variables,), levels of each variable, at least 1; two variables or more.
    observed
        bool of shape (n_variables, n_variables), symmetric, False on the diagonal.
    rank
        Levels that each side must have.

    Returns
    -------
    Names and bool arrays of shape (n_variables,), True on the first side; no split comes twice.

    Raises
    ------
    RankError
        If no split at all leaves ``rank`` levels on both sides.
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
    """Part the variables greedily so that many observed pairs lie across.

    The variable with most partners goes first; next is always the one whose placed partners lie
    most on one side, and it goes to the other. A tie goes to the side with fewer levels. A graph
    of pairs that is bipartite and connected is cut exactly.

    Parameters
    ----------
    cardinalities
        int64 of shape (n_variables,), at least 1.
    observed
        bool of shape (n_variables, n_variables), symmetric, False on the diagonal.

    Returns
    -------
    bool of shape (n_variables,), True on the first side.
    """
    n_variables = cardinalities.size
    degrees = observed.sum(axis=1)
    # Placed partners on the second side minus those on the first; positive pulls to the first.
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
    """Part the variables so that the side with fewer levels has as many as can be.

    Parameters
    ----------
    cardinalities
        int64 of shape (n_variables,), at least 1.

    Returns
    -------
    bool of shape (n_variables,), True on the smaller side.

    Notes
    -----
    Exact, by subset sums: n_variables * n_levels bits.
    """
    # Bit s of entry j says that some of the first j variables have s levels together.
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
    """Keep each split once, and its exchange, where both sides have ``rank`` levels."""
    kept: dict[bytes, tuple[str, BoolArray]] = {}
    for name, first in splits.items():
        sides = cardinalities[first].sum(), cardinalities[~first].sum()
        if min(sides) >= rank:
            kept.setdefault(first.tobytes(), (name, first))
            kept.setdefault((~first).tobytes(), (f"{name}, exchanged", ~first))
    return list(kept.values())
