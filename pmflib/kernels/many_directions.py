"""Cells of variables of many directions, worked on level by level: what they say of their variable.

extent is as in `pmflib.kernels.few_directions`.
"""

from pmflib.kernels.em_segments import INNER, PART
from pmflib.kernels.llvm.saved_code import compile_kernel
from pmflib.kernels.small_matrices import find_variance
from pmflib.kernels.trait_cells import average_slopes, expect_levels

MOST_JOINT = 8
"""Directions of a variable up to which all pairs of them have second derivatives. Beyond, a bound stands for all."""


@compile_kernel(saved=False, **INNER)
def add_many_scores(level, extent, curved_at, weight, scores, state, sums, work):  # type: ignore[no-untyped-def]
    """Add what one cell says of its variable.

    curved_at: where the second derivatives of the variable begin. state: PMF of its levels, slopes of all levels, y,
    covariance and design. sums: gradients and curvatures of all variables. work: float64 (3, n_traits) and (most
    levels,).
    """
    first, last, _, _, n_directions = extent
    chances, slopes, y, covariance, design = state
    vectors, levels = work
    average, centred = vectors[0], vectors[1]
    average_slopes(slopes, first, last, chances, average)
    for k in range(last - first):
        for f in range(y.size):
            centred[f] = slopes[first + k, f] - average[f]
        levels[k] = find_variance(covariance, centred)
    expect_levels(chances, last - first, levels)
    for j in range(n_directions):
        mean = _add_gradient(
            level, j, extent, weight, scores, (chances, levels, slopes, y, covariance), sums[0],
            vectors,
        )  # fmt: skip
        if n_directions <= MOST_JOINT:
            place = curved_at + j * (j + 1) // 2 * design.size
            _add_pairs(j, mean, extent, place, weight, scores, chances, design, sums[1])
    if n_directions > MOST_JOINT:
        _add_bound(last - first, curved_at, weight, chances, design, sums[1])


@compile_kernel(saved=False, **PART)
def _add_gradient(level, j, extent, weight, scores, state, gradients, vectors):  # type: ignore[no-untyped-def]
    """Add the gradient of one direction; returns the mean of its scores under the PMF."""
    first, last, at, begin, n_directions = extent
    chances, levels, slopes, y, covariance = state
    spread, turned = vectors[1], vectors[2]
    n_traits, n_levels = y.size, last - first
    mean, expected = 0.0, 0.0
    for k in range(n_levels):
        mean += chances[k] * scores[at + k * n_directions + j]
        expected += levels[k] * scores[at + k * n_directions + j]
    left = weight * (scores[at + (level - first) * n_directions + j] - expected)
    gradients[begin + j, 0] += left
    for f in range(n_traits):
        turned[f] = 0.0
    for k in range(n_levels):
        pull = chances[k] * (scores[at + k * n_directions + j] - mean)
        for f in range(n_traits):
            turned[f] += pull * slopes[first + k, f]
    between = 0.0
    for f in range(n_traits):
        spread[f] = 0.0
        for g in range(n_traits):
            spread[f] += covariance[f, g] * turned[g]
        between += turned[f] * spread[f]
    # the expected variance is that of the expected PMF, less that of the mean score
    within, at_mean = -between, 0.0
    for k in range(n_levels):
        score = scores[at + k * n_directions + j]
        within += levels[k] * (score - expected) ** 2
        at_mean += chances[k] * (score - mean) ** 2
    ratio = max(within / at_mean, 0.25) if at_mean > 0 else 1.0
    for f in range(n_traits):
        gradients[begin + j, f + 1] += left * y[f] - weight * ratio * spread[f]
    return mean


@compile_kernel(saved=False, **PART)
def _add_pairs(j, mean, extent, place, weight, scores, chances, design, curvatures):  # type: ignore[no-untyped-def]
    """Add the second derivatives, from a place on, of one direction with those before it and with itself."""
    first, last, at, _, n_directions = extent
    for i in range(j + 1):
        bend = 0.0
        for k in range(last - first):
            bend += (
                chances[k]
                * (scores[at + k * n_directions + j] - mean)
                * scores[at + k * n_directions + i]
            )
        bend *= weight
        for f in range(design.size):
            curvatures[place + f] += bend * design[f]
        place += design.size


@compile_kernel(saved=False, **PART)
def _add_bound(n_levels, place, weight, chances, design, curvatures):  # type: ignore[no-untyped-def]
    """Add the bound that stands for the second derivatives of all pairs of directions."""
    bend = 0.0
    for k in range(n_levels):
        bend = max(bend, 2.0 * weight * chances[k] * (1.0 - chances[k]))
    for f in range(design.size):
        curvatures[place + f] += bend * design[f]
