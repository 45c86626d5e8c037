"""Ways to part the variables in two sides, so that the pairs across them make one matrix."""

import numpy as np

from pmflib.arrays import BoolArray, IntArray
from pmflib.errors import RankError


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
    placed = first.copy()
    lead = 0
    for _ in range(n_variables):
        urgency = np.where(placed, -1, np.abs(pull) * n_variables + degrees)
        variable = int(np.argmax(urgency))
        first[variable] = pull[variable] > 0 or (pull[variable] == 0 and lead <= 0)
        placed[variable] = True
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
    wanted = (sums[-1] & ((1 << (half + 1)) - 1)).bit_length() - 1
    first = np.zeros(cardinalities.size, np.bool_)
    for variable in range(cardinalities.size - 1, -1, -1):
        if not sums[variable] >> wanted & 1:
            first[variable] = True
            wanted -= int(cardinalities[variable])
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
