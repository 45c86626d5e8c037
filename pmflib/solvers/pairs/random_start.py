"""Random start: single marginals, perturbed."""

from __future__ import annotations

import numpy as np

from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.level_blocks import normalise_blocks


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
