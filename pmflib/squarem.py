"""Squared extrapolation of EM: a long step along the path of two passes, and whether to keep it."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from pmflib.arrays import FloatArray, IntArray

Model: TypeAlias = tuple[FloatArray, FloatArray]
"""Prior (rank,) and factors (n_levels, rank)."""

SHRINK = 0.1
"""An extrapolation takes at most this share... of a probability: EM never leaves a zero."""


def extrapolate(start: Model, middle: Model, end: Model, offsets: IntArray) -> Model:
    """Go on along the path of two passes of EM, as far as their shrinking steps suggest.

    Parameters
    ----------
    start, middle, end
        A model, and what one and two passes made of it.
    offsets
        int64 of shape (n_variables + 1,).

    Returns
    -------
    A model; its objective may be worse. It is the end where the steps do not shrink.

    References
    ----------
    Varadhan, Roland (2008), "Simple and globally convergent methods for accelerating the convergence of any EM
    algorithm", scheme SqS3.
    """
    steps = [b - a for a, b in zip(start, middle, strict=True)]
    bends = [c - b - step for b, c, step in zip(middle, end, steps, strict=True)]
    length, bend = (np.sqrt(sum(float((x**2).sum()) for x in xs)) for xs in (steps, bends))
    if not length > bend > 0:
        return end
    stretch = length / bend
    prior, factors = (
        np.maximum(a + 2 * stretch * step + stretch**2 * bent, SHRINK * c)
        for a, step, bent, c in zip(start, steps, bends, end, strict=True)
    )
    sizes = np.diff(offsets)
    totals = np.add.reduceat(factors, offsets[:-1], axis=0)
    return prior / prior.sum(), factors / np.repeat(totals, sizes, axis=0)
