"""Blocks of levels: sums, copies and shares by variable.

The levels of all variables are stacked along an axis; variable j owns entries ``offsets[j]:offsets[j + 1]``.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pmflib.arrays import FloatArray, IntArray

S = TypeVar("S", bound=np.generic)

FLOOR = 1e-300
"""Probabilities and sums at most this large are no mass: nothing is divided by them, and logarithms are taken of this.

It bounds rounding. Numbers near the least normal one, 2e-308, have lost digits: their quotients would not sum to 1.
"""


def sum_blocks(stacked: NDArray[S], offsets: IntArray, axis: int = 0) -> NDArray[S]:
    """Sum over each variable's levels along an axis: one entry per variable in place of its levels."""
    return np.asarray(np.add.reduceat(stacked, offsets[:-1], axis=axis))


def repeat_blocks(by_variable: NDArray[S], offsets: IntArray, axis: int = 0) -> NDArray[S]:
    """Repeat what is given per variable over the variable's levels along an axis."""
    return np.repeat(by_variable, np.diff(offsets), axis=axis)


def sum_pairs(table: NDArray[S], offsets: IntArray) -> NDArray[S]:
    """Sum a table (n_levels, n_levels) over the levels of each pair of variables: (n_variables, n_variables)."""
    return sum_blocks(sum_blocks(table, offsets), offsets, axis=1)


def spread_pairs(by_pair: NDArray[S], offsets: IntArray) -> NDArray[S]:
    """Repeat what is given per pair of variables over the pair's levels: (n_levels, n_levels)."""
    return repeat_blocks(repeat_blocks(by_pair, offsets), offsets, axis=1)


def list_owners(offsets: IntArray) -> IntArray:
    """List the variable that owns each level: int64 of shape (n_levels,)."""
    return repeat_blocks(np.arange(offsets.size - 1), offsets)


def normalise_blocks(
    stacked: FloatArray | IntArray, offsets: IntArray, fallback: FloatArray
) -> FloatArray:
    """Scale each variable's rows to sum 1 by column.

    Parameters
    ----------
    stacked
        Array of shape (n_levels,) or (n_levels, n_columns), nonnegative.
    offsets
        int64 of shape (n_variables + 1,).
    fallback
        float64, broadcast to the shape of ``stacked``: taken where a variable's column sums to `FLOOR` at most.

    Returns
    -------
    float64 of the shape of ``stacked``.
    """
    mass = repeat_blocks(sum_blocks(stacked, offsets), offsets)
    full = mass > FLOOR
    return np.where(full, stacked / np.where(full, mass, 1.0), fallback)


def spread_evenly(offsets: IntArray) -> FloatArray:
    """Uniform PMF of every variable: float64 of shape (n_levels,)."""
    sizes = np.diff(offsets)
    return repeat_blocks(1.0 / sizes, offsets)
