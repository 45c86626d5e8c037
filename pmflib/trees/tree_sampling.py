"""Samples drawn from latent classes with forests."""

from __future__ import annotations

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.errors import PmfError
from pmflib.trees.tree_statistics import TreeParameters


def draw_rows(parameters: TreeParameters, n_rows: int, rng: np.random.Generator) -> IntArray:
    """Draw rows, nothing missing.

    Parameters
    ----------
    parameters
        The model.
    n_rows
        How many, at least 0.
    rng
        Source of randomness; it is advanced by ``n_rows * (n_variables + 1)`` doubles.

    Returns
    -------
    int8 of shape (n_rows, n_variables), or int16 where a variable has more than 127 levels.

    Raises
    ------
    PmfError
        If n_rows is negative.
    """
    if n_rows < 0:
        raise PmfError(f"n_rows is {n_rows}, below 0: pass a count of rows")
    prior, forest, tables = parameters
    n_variables = forest.offsets.size - 1
    dtype = np.int8 if np.diff(forest.offsets).max() <= 127 else np.int16
    codes = np.empty((n_rows, n_variables), dtype)
    states = _draw(np.broadcast_to(prior, (n_rows, prior.size)), rng.random(n_rows))
    uniforms = rng.random((n_rows, n_variables))
    for state in np.unique(states).tolist():
        rows = np.flatnonzero(states == state)
        for place in forest.order[state].tolist():
            parent = int(forest.parents[state, place])
            above = codes[rows, parent] if parent >= 0 else np.zeros(rows.size, np.int64)
            table = forest.cut(tables, state, place)
            codes[rows, place] = _draw(table, uniforms[rows, place], above)
    return codes


def _draw(table: FloatArray, uniforms: FloatArray, above: IntArray | None = None) -> IntArray:
    """Code of each uniform number in [0, 1) under the PMF of its row of a table."""
    edges = np.cumsum(table, axis=1)
    # divided by the last, which is exactly 1 then: no level of probability 0 is drawn
    edges = edges / edges[:, -1:]
    if above is not None:
        edges = edges[above]
    return np.asarray((edges <= uniforms[:, None]).sum(axis=1))
