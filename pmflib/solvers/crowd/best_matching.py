"""Which column goes to which class, so that the sum of gains is largest."""

from __future__ import annotations

from pmflib.arrays import FloatArray, IntArray


def match_columns(gains: FloatArray) -> IntArray:
    """Find the assignment of columns to rows with the largest sum.

    Parameters
    ----------
    gains
        float64 of shape (n, n).

    Returns
    -------
    int64 of shape (n,): column of each row, a permutation.
    """
    from scipy.optimize import (
        linear_sum_assignment,  # takes .3 s to load, and few label logs come here
    )

    columns: IntArray = linear_sum_assignment(-gains)[1]
    return columns
