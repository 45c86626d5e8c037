"""Cells of variables of one or two directions: few numbers say all of them, whatever the number of levels.

All that such a cell says of the traits, and of its variable, follows from the scores of the levels and from
``v' V v``, where the v are the directions of the variable and V is the covariance of the traits.

Of a variable, extent says where its levels begin and end, where its scores begin and where its directions, and how many
of these it has. moments are the means and covariances of its scores under its PMF: e_0, e_1, C_00, C_01, C_11.
"""

import math

from pmflib.kernels.em_segments import INNER, PART
from pmflib.kernels.llvm.saved_code import compile_kernel
from pmflib.kernels.small_matrices import add_outer
from pmflib.kernels.trait_cells import LEAST_CHANCE, expect_levels

FEW_DIRECTIONS = 2
"""Directions of a variable up to which these functions work on its cells; of more, cells are worked on by levels."""


@compile_kernel(saved=False, **INNER)
def weigh_scores(extent, base, layout, y, along, chances, moments):  # type: ignore[no-untyped-def]
    """Fill the PMF of the levels of a variable at y, of all levels, and the moments of its scores.

    along: filled with the logits by score, ``v . y``, of each direction.
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
    """Fill the moments of the scores of a variable."""
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
    """Do what `pmflib.kernels.trait_cells.add_derivatives` does, after `weigh_scores`."""
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
    """Add the covariance of the slopes of a variable of one or two directions to the lower triangle."""
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
    """Do what `pmflib.kernels.trait_cells.add_skew` does; turned and spans are filled, ``V v`` and ``v' V v``."""
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
    """Fill ``v' V v`` of the pairs of one or two directions: of the first, of both, of the second."""
    for m in range(3):
        spans[m] = 0.0
    for f in range(turned.shape[1]):
        spans[0] += directions[begin, f] * turned[0, f]
        if n_directions == 2:
            spans[1] += directions[begin, f] * turned[1, f]
            spans[2] += directions[begin + 1, f] * turned[1, f]


@compile_kernel(saved=False, **INNER)
def _vary(scores, k, n_directions, moments, spans):  # type: ignore[no-untyped-def]
    """Variance of the logit of a level, whose scores are from k on, less the mean logit."""
    off = scores[k] - moments[0]
    variance = off * off * spans[0]
    if n_directions == 2:
        other = scores[k + 1] - moments[1]
        variance += other * (2.0 * off * spans[1] + other * spans[2])
    return variance


@compile_kernel(saved=False, **INNER)
def add_few_scores(level, extent, curved_at, weight, scores, owned, state, sums, levels):  # type: ignore[no-untyped-def]
    """Add what one cell says of its variable.

    curved_at: where the second derivatives of the variable begin. owned: PMF of its levels, moments, turned and spans.
    state: y and design. sums: gradients and curvatures of all variables. levels: work.
    """
    first, last, at, begin, n_directions = extent
    chances, moments, turned, spans = owned
    y, design = state
    gradients, curvatures = sums
    for k in range(last - first):
        levels[k] = _vary(scores, at + k * n_directions, n_directions, moments, spans)
    expect_levels(chances, last - first, levels)
    place = curved_at
    for j in range(n_directions):
        expected, square = 0.0, 0.0
        for k in range(last - first):
            score = scores[at + k * n_directions + j]
            expected += levels[k] * score
            square += levels[k] * score * score
        left = weight * (scores[at + (level - first) * n_directions + j] - expected)
        # covariances of this direction with the first and the second
        near = moments[2] if j == 0 else moments[3]
        far = moments[3] if j == 0 else moments[4]
        between = near * near * spans[0]
        if n_directions == 2:
            between += far * (2.0 * near * spans[1] + far * spans[2])
        # the expected variance is that of the expected PMF, less that of the mean score
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
                curvatures[place + f] += bend * design[f]
            place += design.size
