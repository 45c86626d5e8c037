"""Squared extrapolation of EM: a long step along the path of two passes, and whether to keep it."""

from __future__ import annotations

import numpy as np

from pmflib.arrays import IntArray, Parameters

SHRINK = 0.1
"""An extrapolation leaves at least this share of a probability: EM never leaves a zero."""
FIRST_REACH = 4.0
"""Longest stretch at the beginning."""
GROWTH = 4.0
"""Factor by which the longest stretch grows when it was too short, and shrinks when an extrapolation is refused."""
LEAST_REACH = 1.5
LEAST_STRETCH = 1.01
"""Extrapolations below are not worth a pass to judge them."""


def extrapolate(
    start: Parameters, middle: Parameters, end: Parameters, offsets: IntArray, reach: float
) -> tuple[Parameters, float]:
    """Go on along the path of two passes of EM, as far as their shrinking steps suggest.

    Parameters
    ----------
    start, middle, end
        A model, and what one and two passes made of it.
    offsets
        int64 of shape (n_variables + 1,).
    reach
        Longest stretch, at least 1.

    Returns
    -------
    A model, whose objective may be worse, and its stretch: 1 is the end itself.

    References
    ----------
    Varadhan, Roland (2008), "Simple and globally convergent methods for accelerating the convergence of any EM
    algorithm", scheme SqS3.
    """
    steps = [b - a for a, b in zip(start, middle, strict=True)]
    bends = [c - b - step for b, c, step in zip(middle, end, steps, strict=True)]
    length, bend = (np.sqrt(sum(float((x**2).sum()) for x in xs)) for xs in (steps, bends))
    stretch = min(length / bend, reach) if length > bend > 0 else 1.0
    if stretch < LEAST_STRETCH:
        return end, 1.0
    prior, factors = (
        np.maximum(a + 2 * stretch * step + stretch**2 * bent, SHRINK * c)
        for a, step, bent, c in zip(start, steps, bends, end, strict=True)
    )
    sizes = np.diff(offsets)
    totals = np.add.reduceat(factors, offsets[:-1], axis=0)
    return (prior / prior.sum(), factors / np.repeat(totals, sizes, axis=0)), stretch
