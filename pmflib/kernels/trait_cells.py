"""What a cell of a trait model says of the traits of its sample: its PMF, and the derivatives of its log-probability.

The level r of variable i has the logit ``base[r] + slopes[r] . y``, y the traits. What is called for every cell is
inlined whatever its size: a call takes longer than some of these loops.
"""

import math

from pmflib.kernels.em_segments import INNER
from pmflib.kernels.llvm.saved_code import compile_kernel
from pmflib.kernels.small_matrices import find_variance

LEAST_CHANCE = 1e-300
"""Probability that stands for any below it, so that its logarithm is finite."""


@compile_kernel(saved=False, **INNER)
def find_chances(base, slopes, first, stop, y, chances):  # type: ignore[no-untyped-def]
    """Fill chances with the PMF of the levels [first, stop) at y."""
    peak = -math.inf
    for level in range(first, stop):
        logit = base[level]
        for f in range(y.size):
            logit += slopes[level, f] * y[f]
        chances[level - first] = logit
        peak = max(peak, logit)
    total = 0.0
    for k in range(stop - first):
        chances[k] = math.exp(chances[k] - peak)
        total += chances[k]
    for k in range(stop - first):
        chances[k] /= total


@compile_kernel(saved=False, **INNER, forceinline=True)
def average_slopes(slopes, first, stop, chances, average):  # type: ignore[no-untyped-def]
    """Fill the mean of a variable's slopes under its PMF."""
    for f in range(average.size):
        average[f] = 0.0
    for k in range(stop - first):
        for f in range(average.size):
            average[f] += chances[k] * slopes[first + k, f]


@compile_kernel(saved=False, **INNER)
def add_curvature(slopes, first, stop, chances, mean, centred, curvature):  # type: ignore[no-untyped-def]
    """Add the covariance of a variable's slopes under its PMF to the lower triangle of the curvature."""
    n_traits = mean.size
    if stop - first == 2:
        weight = chances[0] * chances[1]
        for f in range(n_traits):
            centred[f] = slopes[first + 1, f] - slopes[first, f]
        for f in range(n_traits):
            scaled = weight * centred[f]
            for g in range(f + 1):
                curvature[f, g] += scaled * centred[g]
        return
    for level in range(first, stop):
        weight = chances[level - first]
        for f in range(n_traits):
            centred[f] = slopes[level, f] - mean[f]
        for f in range(n_traits):
            scaled = weight * centred[f]
            for g in range(f + 1):
                curvature[f, g] += scaled * centred[g]


@compile_kernel(saved=False, **INNER, forceinline=True)
def add_derivatives(level, first, stop, base, slopes, y, chances, average, centred, sums):  # type: ignore[no-untyped-def]
    """Add the gradient of a cell's log-probability by the traits, and minus its second derivative, the lower triangle.

    sums: gradient and curvature. chances is filled with the PMF of the variable's levels [first, stop) at y. Returns
    the log-probability, nats.
    """
    gradient, curvature = sums
    find_chances(base, slopes, first, stop, y, chances)
    average_slopes(slopes, first, stop, chances, average)
    for f in range(y.size):
        gradient[f] += slopes[level, f] - average[f]
    add_curvature(slopes, first, stop, chances, average, centred, curvature)
    return math.log(max(chances[level - first], LEAST_CHANCE))


@compile_kernel(saved=False, **INNER, forceinline=True)
def add_skew(slopes, first, stop, chances, covariance, average, centred, pull):  # type: ignore[no-untyped-def]
    """Add half the third derivative of a cell's log-probability, by the covariance: it pulls the mean off the peak."""
    average_slopes(slopes, first, stop, chances, average)
    for k in range(stop - first):
        for f in range(pull.size):
            centred[f] = slopes[first + k, f] - average[f]
        variance = find_variance(covariance, centred)
        for f in range(pull.size):
            pull[f] -= 0.5 * chances[k] * variance * centred[f]


@compile_kernel(saved=False, **INNER, forceinline=True)
def shift_to_mean(covariance, pull, y):  # type: ignore[no-untyped-def]
    """Move traits from the peak of their posterior to its mean, by its covariance and the sum of `add_skew`."""
    for f in range(y.size):
        shift = 0.0
        for g in range(y.size):
            shift += covariance[f, g] * pull[g]
        # where a series of the third power is too short
        reach = math.sqrt(covariance[f, f])
        y[f] += min(max(shift, -reach), reach)


@compile_kernel(saved=False, **INNER, forceinline=True)
def expect_levels(chances, n_levels, levels):  # type: ignore[no-untyped-def]
    """Turn variances of logits into the expected PMF under the normal posterior: to second order, half their excess."""
    total = 0.0
    for k in range(n_levels):
        total += chances[k] * levels[k]
    largest = 0.0
    for k in range(n_levels):
        largest = max(largest, abs(0.5 * (levels[k] - total)))
    # where the spread is too large for the series
    damping = 1.0 if largest <= 0.5 else 0.5 / largest
    for k in range(n_levels):
        levels[k] = chances[k] * (1.0 + 0.5 * damping * (levels[k] - total))
