"""PMF and derivatives of a cell of a trait model with respect to the traits, for few or many directions.

For a variable with one or two directions, all contributions of a cell depend on the scores of the levels and on
``v' V v``, where the v are the directions of the variable and V is the covariance of the traits.

extent describes a variable: its first and last level, the start of its scores and of its directions, and its number of
directions. moments are the means and covariances of its scores under its PMF: e_0, e_1, C_00, C_01, C_11.

Cells of variables with more directions are processed level by level.
"""

import math

from pmflib.base.compiled.saved_code import compile_kernel
from pmflib.model.kernels.em_arguments import INNER, PART

LARGEST_STEP = 2.0
"""Maximum Newton step in any trait."""


@compile_kernel(saved=False, **INNER)
def factorise(matrix):  # type: ignore[no-untyped-def]
    """Replace the lower triangle of a positive definite matrix by its Cholesky factor."""
    n = len(matrix)
    for f in range(n):
        for g in range(f + 1):
            left = matrix[f, g]
            for k in range(g):
                left -= matrix[f, k] * matrix[g, k]
            matrix[f, g] = math.sqrt(left) if f == g else left / matrix[g, g]


@compile_kernel(saved=False, **INNER)
def solve(factor, vector):  # type: ignore[no-untyped-def]
    """Solve a linear system given a Cholesky factor, in place."""
    n = len(factor)
    for f in range(n):
        for g in range(f):
            vector[f] -= factor[f, g] * vector[g]
        vector[f] /= factor[f, f]
    for f in range(n - 1, -1, -1):
        for g in range(f + 1, n):
            vector[f] -= factor[g, f] * vector[g]
        vector[f] /= factor[f, f]


@compile_kernel(saved=False, **INNER)
def take_step(gradient, curvature, step, y):  # type: ignore[no-untyped-def]
    """Take a Newton step of limited length; returns its largest component and the predicted gain beyond the point."""
    factorise(curvature)
    largest, gained = 0.0, 0.0
    for f in range(y.size):
        step[f] = gradient[f]
    solve(curvature, step)
    for f in range(y.size):
        gained += 0.5 * gradient[f] * step[f] - math.log(curvature[f, f])
        largest = max(largest, abs(step[f]))
    scale = LARGEST_STEP / largest if largest > LARGEST_STEP else 1.0
    for f in range(y.size):
        y[f] += scale * step[f]
    return largest, gained


@compile_kernel(saved=False, **INNER)
def invert(factor, work, inverse):  # type: ignore[no-untyped-def]
    """Invert a matrix given its Cholesky factor."""
    n = len(factor)
    for f in range(n):
        for g in range(n):
            work[g] = 0.0
        work[f] = 1.0
        solve(factor, work)
        for g in range(n):
            inverse[f, g] = work[g]


@compile_kernel(saved=False, **INNER)
def add_outer(vector, curvature):  # type: ignore[no-untyped-def]
    """Add the outer product of a vector with itself to the lower triangle."""
    for f in range(vector.size):
        for g in range(f + 1):
            curvature[f, g] += vector[f] * vector[g]


@compile_kernel(saved=False, **INNER, forceinline=True)
def find_variance(covariance, vector):  # type: ignore[no-untyped-def]
    """Return the variance along a vector under a covariance."""
    variance = 0.0
    for f in range(vector.size):
        left = 0.0
        for g in range(vector.size):
            left += covariance[f, g] * vector[g]
        variance += left * vector[f]
    return variance


LEAST_CHANCE = 1e-300
"""Smallest probability used, so that logarithms are finite."""


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
    """Compute the mean of a variable's slopes under its PMF."""
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
    """Add the gradient of a cell's log-probability in the traits, and its negative Hessian (lower triangle).

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
    """Add half the third derivative of a cell's log-probability, contracted with the covariance: the skewness term."""
    average_slopes(slopes, first, stop, chances, average)
    for k in range(stop - first):
        for f in range(pull.size):
            centred[f] = slopes[first + k, f] - average[f]
        variance = find_variance(covariance, centred)
        for f in range(pull.size):
            pull[f] -= 0.5 * chances[k] * variance * centred[f]


@compile_kernel(saved=False, **INNER, forceinline=True)
def shift_to_mean(covariance, pull, y):  # type: ignore[no-untyped-def]
    """Move traits from the posterior mode to the mean, given the covariance and the sum from `add_skew`."""
    for f in range(y.size):
        shift = 0.0
        for g in range(y.size):
            shift += covariance[f, g] * pull[g]
        # where a third-order series is too short
        reach = math.sqrt(covariance[f, f])
        y[f] += min(max(shift, -reach), reach)


@compile_kernel(saved=False, **INNER, forceinline=True)
def expect_levels(chances, n_levels, levels):  # type: ignore[no-untyped-def]
    """Replace the PMF by its expectation under the normal posterior, to second order, given variances of the logits."""
    total = 0.0
    for k in range(n_levels):
        total += chances[k] * levels[k]
    largest = 0.0
    for k in range(n_levels):
        largest = max(largest, abs(0.5 * (levels[k] - total)))
    # where the variance is too large for the series
    damping = 1.0 if largest <= 0.5 else 0.5 / largest
    for k in range(n_levels):
        levels[k] = chances[k] * (1.0 + 0.5 * damping * (levels[k] - total))


FEW_DIRECTIONS = 2
"""Maximum number of directions handled by these functions; variables with more are processed level by level."""


@compile_kernel(saved=False, **INNER)
def weigh_scores(extent, base, layout, y, along, chances, moments):  # type: ignore[no-untyped-def]
    """Compute the PMF of a variable's levels at y, and the moments of its scores.

    along: filled with ``v . y`` for each direction.
    """
    first, last, at, begin, n_directions = extent
    scores, _, _, directions = layout
    for j in range(n_directions):
        total = 0.0
        for f in range(y.size):
            total += directions[begin + j, f] * y[f]
        along[j] = total
    peak = -math.inf
    for level in range(first, last):
        k = at + (level - first) * n_directions
        logit = base[level] + scores[k] * along[0]
        if n_directions == 2:
            logit += scores[k + 1] * along[1]
        chances[level] = logit
        peak = max(peak, logit)
    total = 0.0
    for level in range(first, last):
        chances[level] = math.exp(chances[level] - peak)
        total += chances[level]
    for level in range(first, last):
        chances[level] /= total
    _fill_moments(extent, scores, chances, moments)


@compile_kernel(saved=False, **PART)
def _fill_moments(extent, scores, chances, moments):  # type: ignore[no-untyped-def]
    """Compute the moments of the scores of a variable."""
    first, last, at, _, n_directions = extent
    for m in range(5):
        moments[m] = 0.0
    for level in range(first, last):
        k = at + (level - first) * n_directions
        weighted = chances[level] * scores[k]
        moments[0] += weighted
        moments[2] += weighted * scores[k]
        if n_directions == 2:
            moments[1] += chances[level] * scores[k + 1]
            moments[3] += weighted * scores[k + 1]
            moments[4] += chances[level] * scores[k + 1] ** 2
    moments[2] = max(moments[2] - moments[0] ** 2, 0.0)
    moments[3] -= moments[0] * moments[1]
    moments[4] = max(moments[4] - moments[1] ** 2, 0.0)


@compile_kernel(saved=False, **INNER, forceinline=True)
def add_few_derivatives(level, extent, layout, chances, moments, centred, sums):  # type: ignore[no-untyped-def]
    """Equivalent to `pmflib.families.traits.kernels.trait_cells.add_derivatives`, after `weigh_scores`."""
    first, _, at, begin, n_directions = extent
    scores, _, _, directions = layout
    gradient, curvature = sums
    for j in range(n_directions):
        pull = scores[at + (level - first) * n_directions + j] - moments[j]
        for f in range(gradient.size):
            gradient[f] += pull * directions[begin + j, f]
    _bend(directions, begin, n_directions, moments, centred, curvature)
    return math.log(max(chances[level], LEAST_CHANCE))


@compile_kernel(saved=False, **INNER)
def _bend(directions, begin, n_directions, moments, centred, curvature):  # type: ignore[no-untyped-def]
    """Add the covariance of the slopes of a variable with one or two directions to the lower triangle."""
    n_traits = centred.size
    root = math.sqrt(moments[2])
    across = moments[3] / root if root > 0.0 else 0.0
    for f in range(n_traits):
        centred[f] = root * directions[begin, f]
        if n_directions == 2:
            centred[f] += across * directions[begin + 1, f]
    add_outer(centred, curvature)
    if n_directions == 2:
        rest = math.sqrt(max(moments[4] - across * across, 0.0))
        for f in range(n_traits):
            centred[f] = rest * directions[begin + 1, f]
        add_outer(centred, curvature)


@compile_kernel(saved=False, **INNER, forceinline=True)
def add_few_skew(extent, layout, chances, moments, covariance, turned, spans, pull):  # type: ignore[no-untyped-def]
    """Equivalent to `add_skew`; also fills turned with ``V v`` and spans with ``v' V v``."""
    first, last, at, begin, n_directions = extent
    scores, _, _, directions = layout
    n_traits = pull.size
    for j in range(n_directions):
        for f in range(n_traits):
            total = 0.0
            for g in range(n_traits):
                total += covariance[f, g] * directions[begin + j, g]
            turned[j, f] = total
    _span(directions, begin, n_directions, turned, spans)
    for j in range(n_directions):
        total = 0.0
        for level in range(first, last):
            k = at + (level - first) * n_directions
            variance = _vary(scores, k, n_directions, moments, spans)
            total += chances[level] * variance * (scores[k + j] - moments[j])
        for f in range(n_traits):
            pull[f] -= 0.5 * total * directions[begin + j, f]


@compile_kernel(saved=False, **INNER)
def _span(directions, begin, n_directions, turned, spans):  # type: ignore[no-untyped-def]
    """Compute ``v' V v`` for pairs of one or two directions: (first, first), (first, second), (second, second)."""
    for m in range(3):
        spans[m] = 0.0
    for f in range(turned.shape[1]):
        spans[0] += directions[begin, f] * turned[0, f]
        if n_directions == 2:
            spans[1] += directions[begin, f] * turned[1, f]
            spans[2] += directions[begin + 1, f] * turned[1, f]


@compile_kernel(saved=False, **INNER)
def _vary(scores, k, n_directions, moments, spans):  # type: ignore[no-untyped-def]
    """Return the variance of a level's logit minus the mean logit, given its scores from k on."""
    off = scores[k] - moments[0]
    variance = off * off * spans[0]
    if n_directions == 2:
        other = scores[k + 1] - moments[1]
        variance += other * (2.0 * off * spans[1] + other * spans[2])
    return variance


@compile_kernel(saved=False, **INNER)
def add_few_scores(level, extent, curved_at, weight, scores, owned, state, sums, levels):  # type: ignore[no-untyped-def]
    """Add the contribution of one cell to the sums of its variable.

    curved_at: start of the variable's second derivatives. owned: PMF of its levels, moments, turned and spans. state: y
    and design. sums: gradients and curvatures of all variables. levels: work space.
    """
    first, last, at, begin, n_directions = extent
    chances, moments, turned, spans = owned
    y, design = state
    gradients, curvatures = sums
    for k in range(last - first):
        levels[k] = _vary(scores, at + k * n_directions, n_directions, moments, spans)
    expect_levels(chances, last - first, levels)
    position = curved_at
    for j in range(n_directions):
        expected, square = 0.0, 0.0
        for k in range(last - first):
            score = scores[at + k * n_directions + j]
            expected += levels[k] * score
            square += levels[k] * score * score
        left = weight * (scores[at + (level - first) * n_directions + j] - expected)
        # covariances of this direction with the first and the second one
        near = moments[2] if j == 0 else moments[3]
        far = moments[3] if j == 0 else moments[4]
        between = near * near * spans[0]
        if n_directions == 2:
            between += far * (2.0 * near * spans[1] + far * spans[2])
        # the expected variance is that of the expected PMF minus that of the mean score
        within = square - expected * expected - between
        at_mean = near if j == 0 else far
        ratio = max(within / at_mean, 0.25) if at_mean > 0 else 1.0
        gradients[begin + j, 0] += left
        for f in range(y.size):
            spread = near * turned[0, f]
            if n_directions == 2:
                spread += far * turned[1, f]
            gradients[begin + j, f + 1] += left * y[f] - weight * ratio * spread
        for i in range(j + 1):
            bend = weight * moments[2 + i + j]
            for f in range(design.size):
                curvatures[position + f] += bend * design[f]
            position += design.size


MOST_JOINT = 8
"""Maximum number of directions with second derivatives for all pairs; for more, an upper bound replaces them."""


@compile_kernel(saved=False, **INNER)
def add_many_scores(level, extent, curved_at, weight, scores, state, sums, work):  # type: ignore[no-untyped-def]
    """Add the contribution of one cell to the sums of its variable.

    curved_at: start of the variable's second derivatives. state: PMF of its levels, slopes of all levels, y, covariance
    and design. sums: gradients and curvatures of all variables. work: float64 (3, n_traits) and (most levels,).
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
            position = curved_at + j * (j + 1) // 2 * design.size
            _add_pairs(j, mean, extent, position, weight, scores, chances, design, sums[1])
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
    # the expected variance is that of the expected PMF minus that of the mean score
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
def _add_pairs(j, mean, extent, position, weight, scores, chances, design, curvatures):  # type: ignore[no-untyped-def]
    """Add the second derivatives of one direction with itself and the previous ones, from a position on."""
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
            curvatures[position + f] += bend * design[f]
        position += design.size


@compile_kernel(saved=False, **PART)
def _add_bound(n_levels, position, weight, chances, design, curvatures):  # type: ignore[no-untyped-def]
    """Add the upper bound that replaces the second derivatives of all pairs of directions."""
    bend = 0.0
    for k in range(n_levels):
        bend = max(bend, 2.0 * weight * chances[k] * (1.0 - chances[k]))
    for f in range(design.size):
        curvatures[position + f] += bend * design[f]
