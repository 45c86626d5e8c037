"""Matrix of pairwise marginals that every pairwise solver takes: its checks, and its diagonal."""

from __future__ import annotations

import numpy as np

from pmflib.arrays import BoolArray, FloatArray, IntArray
from pmflib.errors import SchemaError
from pmflib.level_blocks import normalise_blocks, repeat_blocks, spread_evenly, sum_pairs
from pmflib.solvers.checks import check_nonnegative

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
    wanted = np.where(np.eye(n_variables, dtype=np.bool_), np.rint(sums).clip(0, 1), observed)
    wrong = np.abs(sums - wanted) > SUM_TOLERANCE
    if wrong.any():
        j, k = (int(i) for i in np.argwhere(wrong)[0])
        raise SchemaError(
            f"marginals block ({j}, {k}) sums to {sums[j, k]}, not {wanted[j, k]:g}; divide the "
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
