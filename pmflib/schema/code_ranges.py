"""Smallest and largest code of each variable, in one pass over an array."""

from __future__ import annotations

from typing import Any

import numpy as np

CHUNK_CELLS = 1 << 17
"""Cells looked at twice while they are in the cache of the core."""
WIDE_CELLS = 4096
"""Cells of neighbouring rows that are compared as one: NumPy works on short rows several times slower."""


def find_extremes(codes: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Find the smallest and the largest integer of each column.

    Parameters
    ----------
    codes
        Integers of shape (n_rows, n_columns), at least one of each.

    Returns
    -------
    Two arrays of shape (n_columns,), of the same dtype.
    """
    n_rows, n_columns = codes.shape
    n_together = max(1, WIDE_CELLS // n_columns) if codes.flags.c_contiguous else 1
    n_whole = n_rows // n_together * n_together
    wide = codes[:n_whole].reshape(n_whole // n_together, n_together * n_columns)
    n_chunk = max(1, CHUNK_CELLS // wide.shape[1])
    lows, highs = [], []
    for start in range(0, len(wide), n_chunk):
        chunk = wide[start : start + n_chunk]
        lows.append(chunk.min(axis=0).reshape(n_together, n_columns).min(axis=0))
        highs.append(chunk.max(axis=0).reshape(n_together, n_columns).max(axis=0))
    if n_whole < n_rows:
        lows.append(codes[n_whole:].min(axis=0))
        highs.append(codes[n_whole:].max(axis=0))
    return np.min(lows, axis=0), np.max(highs, axis=0)
