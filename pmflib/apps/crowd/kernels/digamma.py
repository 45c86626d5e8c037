"""The digamma function of many numbers, and Newton's steps for the skills of all workers at once.

The digamma function is the logarithm of a larger number less a shortfall: NumPy takes logarithms in vectors of its own,
and the shortfall is a rational function, in loops that numba vectorises. Nothing is added up here, so the bits do not
depend on the length of a vector.
"""

import math

import numpy as np

from pmflib.base.arrays import FloatArray
from pmflib.base.compiled.saved_code import compile_kernel
from pmflib.model.kernels.em_arguments import INNER, OUTER

FURTHER = 7.5
"""How much larger the number in the logarithm is: eight steps of the recurrence, less a half for an even series."""
CHUNK = 1 << 14
"""Numbers worked on at a time: they stay in a near cache."""


@compile_kernel(saved=False, **INNER, forceinline=True)
def fall_short(x):  # type: ignore[no-untyped-def]
    """log(w) - digamma(x), where w is x + 7.5, and 1 / w**2."""
    # digamma(x + 8) - digamma(x) = 1 / x + ... + 1 / (x + 7), the first and the last together, and so on
    y = x * (x + 7.0)
    upper = (2.0 * x + 7.0) * (((4.0 * y + 84.0) * y + 504.0) * y + 720.0)
    lower = (((y + 28.0) * y + 252.0) * y + 720.0) * y
    # one division instead of two, which take as long as all the rest
    w = x + FURTHER
    one = 1.0 / (lower * (w * w))
    r = one * lower
    # digamma(w + 1 / 2) - log(w), a series in 1 / w**2
    beyond = 1414477 / 67092480 - r * (8191 / 98304)
    beyond = 127 / 30720 - r * (511 / 67584 - r * beyond)
    beyond = r * (1 / 24 - r * (7 / 960 - r * (31 / 8064 - r * beyond)))
    return upper * (one * (w * w)) - beyond, r


@compile_kernel(**OUTER)
def fill_shortfalls(values, out):  # type: ignore[no-untyped-def]
    """Fill out (n,) with log(x + 7.5) - digamma(x) for values x (n,), float64, above 0."""
    for i in range(values.size):
        out[i] = fall_short(values[i])[0]


@compile_kernel(**OUTER)
def fill_rises(values, shares, scale, ratios, out):  # type: ignore[no-untyped-def]
    """Fill what `find_rises` adds, for each of (n,) pairs of numbers, ``scale * shares`` and that plus ``values``.

    ratios: of the larger numbers in the logarithms. out: difference of the shortfalls. All are float64.
    """
    for i in range(values.size):
        low = scale * shares[i]
        high = values[i] + low
        short_low, r = fall_short(low)
        short_high, _ = fall_short(high)
        ratios[i] = (high + FURTHER) * (low + FURTHER) * r
        out[i] = short_low - short_high


def digamma(values: FloatArray) -> FloatArray:
    """The digamma function.

    Parameters
    ----------
    values
        float64 of any shape, above 0.

    Returns
    -------
    float64 of the same shape.
    """
    values = np.ascontiguousarray(values)
    short, logs = np.empty_like(values), values + FURTHER
    fill_shortfalls(values.reshape(-1), short.reshape(-1))
    np.log(logs, out=logs)
    logs -= short
    return logs


def find_rises(values: FloatArray, shares: FloatArray, scale: float, out: FloatArray) -> None:
    """Find ``digamma(values + scale * shares) - digamma(scale * shares)``.

    Parameters
    ----------
    values, shares
        float64 of shape (n,), C-contiguous; at least 0, and above 0.
    scale
        Above 0.
    out
        float64 of shape (n,), overwritten.
    """
    ratios = np.empty(min(CHUNK, values.size))
    for start in range(0, values.size, CHUNK):
        chunk = slice(start, start + CHUNK)
        part = ratios[: values[chunk].size]
        fill_rises(values[chunk], shares[chunk], scale, part, out[chunk])
        np.log(part, out=part)
        out[chunk] += part


@compile_kernel(**OUTER)
def find_skills(right, totals, odds, spread, n_steps, work, skills):  # type: ignore[no-untyped-def]
    """Go n_steps toward the most probable skills, by at most 1 each.

    right and totals: float64 (n_classes, n_workers), labels by true class, those that are right and all. odds:
    (n_classes,), of being right, for a skill of 0; a skill multiplies them by its exponential. spread: variance of the
    skills. work: (3, n_workers), overwritten. skills: (n_workers,), changed.
    """
    slopes, bends, factors = work[0], work[1], work[2]
    # classes outside: loops over workers become vectors
    for _ in range(n_steps):
        for i in range(skills.size):
            factors[i] = math.exp(skills[i])
            slopes[i] = -skills[i] / spread
            bends[i] = 1.0 / spread
        for k in range(odds.size):
            for i in range(skills.size):
                wrong = 1.0 / (1.0 + odds[k] * factors[i])
                missed = totals[k, i] * wrong
                slopes[i] += right[k, i] - totals[k, i] + missed
                bends[i] += missed * (1.0 - wrong)
        for i in range(skills.size):
            skills[i] += min(max(slopes[i] / bends[i], -1.0), 1.0)
