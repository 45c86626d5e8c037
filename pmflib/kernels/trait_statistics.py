"""Sufficient statistics of an EM pass over samples under a trait model: what its M-step needs of every variable.

The logit of level r of variable i is ``base[r] + sum_j scores[r, j] v_ij . y``, j over the directions of the
variable: one for two levels, two for ordered levels, and one less than it has levels for nominal ones. Of each sample
the traits y have the mean m and the covariance V. With p the PMF at m, e its mean score and C the covariance of the
scores, the gradient of ``(b, v)_ij`` is ``(s - e')_j (1, m) - (0, sum_l C_jl V v_il)``, where e' takes the spread of y
into account to second order, and minus the second derivative ``C x A``, A = ``(1, m)(1, m)' + (0, V)``. Of a variable
with many directions, which are orthonormal contrasts, a bound of the eigenvalues stands for C, ``max 2 p (1 - p)``.

Of one or two directions, all that a cell says follows from the scores and from ``v' V v``, few numbers whatever the
number of levels; other cells are worked on level by level.
"""

import math

from pmflib.kernels.em_segments import INNER, UNCOUNTED
from pmflib.kernels.llvm.saved_code import compile_kernel
from pmflib.kernels.trait_folds import (
    LARGEST_STEP,
    add_curvature,
    factorise,
    find_chances,
    invert,
    solve,
)

MOST_JOINT = 8
"""Directions of a variable up to which all pairs of them have second derivatives. Beyond, a bound stands for all."""
FEW_DIRECTIONS = 2


@compile_kernel(saved=False, **INNER)
def _weigh_scores(base, first, last, scores, at, n_directions, along, chances, moments):  # type: ignore[no-untyped-def]
    """Fill the PMF of a variable of one or two directions, and the means and covariances of its scores under it.

    along: logits by score, of each direction. moments: e_0, e_1, C_00, C_01, C_11.
    """
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
    for m in range(5):
        moments[m] = 0.0
    for level in range(first, last):
        chances[level] /= total
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


@compile_kernel(saved=False, **INNER)
def _add_outer(vector, curvature):  # type: ignore[no-untyped-def]
    """Add the outer product of a vector to the lower triangle."""
    for f in range(vector.size):
        for g in range(f + 1):
            curvature[f, g] += vector[f] * vector[g]


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
    _add_outer(centred, curvature)
    if n_directions == 2:
        rest = math.sqrt(max(moments[4] - across * across, 0.0))
        for f in range(n_traits):
            centred[f] = rest * directions[begin + 1, f]
        _add_outer(centred, curvature)


@compile_kernel(**UNCOUNTED)
def rest_cells(arrays, layout, gradients, curvatures, work):  # type: ignore[no-untyped-def]
    """Fill what cells say of traits that are 0: where Newton's steps begin, which is the same for all samples.

    arrays, layout: as for `add_trait_statistics`. gradients: float64 (n_levels, n_traits), of a cell's log-probability
    by the traits. curvatures: float64 (n_variables, n_traits, n_traits), lower triangles of minus its second
    derivatives. work: float64 (2, n_traits) and (most levels,).
    """
    _, offsets, base, slopes = arrays
    average, centred = work[0][0], work[0][1]
    chances = work[1]
    n_traits = slopes.shape[1]
    nowhere = average
    for i in range(offsets.size - 1):
        first, last = offsets[i], offsets[i + 1]
        for f in range(n_traits):
            nowhere[f] = 0.0
            for g in range(n_traits):
                curvatures[i, f, g] = 0.0
        find_chances(base, slopes, first, last, nowhere, chances)
        for k in range(last - first):
            for f in range(n_traits):
                average[f] += chances[k] * slopes[first + k, f]
        for level in range(first, last):
            for f in range(n_traits):
                gradients[level, f] = slopes[level, f] - average[f]
        add_curvature(slopes, first, last, chances, average, centred, curvatures[i])


@compile_kernel(saved=False, **INNER)
def _step(gradient, curvature, step, y):  # type: ignore[no-untyped-def]
    """Take a Newton step, of limited length; returns its largest part, and what it gains beyond the point."""
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
def _find_traits(indices, start, stop, arrays, layout, resting, limits, state, work):  # type: ignore[no-untyped-def]
    """Mean of the posterior of one sample's traits, Laplace's covariance, and the log-probability of its cells, nats.

    state: y and covariance, filled. work: vectors; curvature; chances, of all levels; moments and spans, of all
    variables: of the PMFs near the peak, ``V v_j`` and ``v' V v``.
    """
    owners, offsets, base, slopes = arrays
    scores, starts, n_directions, directions = layout
    y, covariance = state
    vectors, curvature, chances, moments, turned, spans = work
    gradient, step, average, along = vectors[0], vectors[1], vectors[2], moments[-1]
    n_traits = y.size
    for f in range(n_traits):
        y[f] = 0.0
        gradient[f] = 0.0
        for g in range(f + 1):
            curvature[f, g] = 1.0 if f == g else 0.0
    for t in range(start, stop):
        owner = owners[indices[t]]
        for f in range(n_traits):
            gradient[f] += resting[0][indices[t], f]
            for g in range(f + 1):
                curvature[f, g] += resting[1][owner, f, g]
    _step(gradient, curvature, step, y)
    found = 0.0
    for _ in range(limits[0]):
        found = 0.0
        for f in range(n_traits):
            gradient[f] = -y[f]
            found -= 0.5 * y[f] * y[f]
            for g in range(f + 1):
                curvature[f, g] = 1.0 if f == g else 0.0
        for t in range(start, stop):
            level = indices[t]
            owner = owners[level]
            first, last = offsets[owner], offsets[owner + 1]
            n_each, at, begin = n_directions[owner], starts[owner, 0], starts[owner, 1]
            if n_each == 0:
                continue
            if n_each > FEW_DIRECTIONS:
                own = chances[first:last]
                find_chances(base, slopes, first, last, y, own)
                for f in range(n_traits):
                    average[f] = 0.0
                for k in range(last - first):
                    for f in range(n_traits):
                        average[f] += own[k] * slopes[first + k, f]
                for f in range(n_traits):
                    gradient[f] += slopes[level, f] - average[f]
                add_curvature(slopes, first, last, own, average, step, curvature)
            else:
                _look_along(directions, begin, n_each, y, along)
                _weigh_scores(base, first, last, scores, at, n_each, along, chances, moments[owner])
                for j in range(n_each):
                    pull = scores[at + (level - first) * n_each + j] - moments[owner, j]
                    for f in range(n_traits):
                        gradient[f] += pull * directions[begin + j, f]
                _bend(directions, begin, n_each, moments[owner], step, curvature)
            found += math.log(max(chances[level], 1e-300))
        largest, gained = _step(gradient, curvature, step, y)
        found += gained
        if largest < limits[1]:
            break
    invert(curvature, step, covariance)
    # from the peak of the posterior to its mean, by the third derivative of its logarithm
    for f in range(n_traits):
        gradient[f] = 0.0
    for t in range(start, stop):
        owner = owners[indices[t]]
        first, last = offsets[owner], offsets[owner + 1]
        n_each, at, begin = n_directions[owner], starts[owner, 0], starts[owner, 1]
        if n_each > FEW_DIRECTIONS:
            for f in range(n_traits):
                average[f] = 0.0
            for level in range(first, last):
                for f in range(n_traits):
                    average[f] += chances[level] * slopes[level, f]
            for level in range(first, last):
                for f in range(n_traits):
                    step[f] = slopes[level, f] - average[f]
                variance = _measure(covariance, step)
                for f in range(n_traits):
                    gradient[f] -= 0.5 * chances[level] * variance * step[f]
            continue
        for j in range(n_each):
            for f in range(n_traits):
                total = 0.0
                for g in range(n_traits):
                    total += covariance[f, g] * directions[begin + j, g]
                turned[owner, j, f] = total
        _span(directions, begin, n_each, turned[owner], spans[owner])
        for j in range(n_each):
            pull = 0.0
            for level in range(first, last):
                k = at + (level - first) * n_each
                variance = _vary(scores, k, n_each, moments[owner], spans[owner])
                pull += chances[level] * variance * (scores[k + j] - moments[owner, j])
            for f in range(n_traits):
                gradient[f] -= 0.5 * pull * directions[begin + j, f]
    for f in range(n_traits):
        shift = 0.0
        for g in range(n_traits):
            shift += covariance[f, g] * gradient[g]
        # where a series of the third power is too short
        reach = math.sqrt(covariance[f, f])
        y[f] += min(max(shift, -reach), reach)
    return found


@compile_kernel(saved=False, **INNER)
def _look_along(directions, begin, n_directions, y, along):  # type: ignore[no-untyped-def]
    """Fill ``v_j . y`` of the directions of a variable."""
    for j in range(n_directions):
        total = 0.0
        for f in range(y.size):
            total += directions[begin + j, f] * y[f]
        along[j] = total


@compile_kernel(saved=False, **INNER)
def _span(directions, begin, n_directions, turned, spans):  # type: ignore[no-untyped-def]
    """Fill ``v' V v`` of the pairs of one or two directions: of the first, of both, of the second."""
    for m in range(3):
        spans[m] = 0.0
    for f in range(turned.shape[1]):
        spans[0] += directions[begin, f] * turned[0, f] if n_directions else 0.0
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
def _measure(covariance, vector):  # type: ignore[no-untyped-def]
    """Variance along a vector."""
    variance = 0.0
    for f in range(vector.size):
        left = 0.0
        for g in range(vector.size):
            left += covariance[f, g] * vector[g]
        variance += left * vector[f]
    return variance


@compile_kernel(saved=False, **INNER)
def _add_simple_cell(  # type: ignore[no-untyped-def]
    level, first, last, at, begin, curved_at, n_directions, weight, owned, state, sums, levels
):
    """Add what one cell of one or two directions says of its variable.

    owned: scores, chances, moments, turned, spans of the variable.
    """
    scores, chances, moments, turned, spans = owned
    y, design = state
    gradients, curvatures = sums
    n_traits, n_packed = y.size, design.size
    total = 0.0
    for k in range(last - first):
        levels[k] = _vary(scores, at + k * n_directions, n_directions, moments, spans)
        total += chances[first + k] * levels[k]
    largest = 0.0
    for k in range(last - first):
        largest = max(largest, abs(0.5 * (levels[k] - total)))
    # expected PMF under the normal posterior, to second order, damped where the spread is too large for the series
    damping = 1.0 if largest <= 0.5 else 0.5 / largest
    for k in range(last - first):
        levels[k] = chances[first + k] * (1.0 + 0.5 * damping * (levels[k] - total))
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
        for f in range(n_traits):
            spread = near * turned[0, f]
            if n_directions == 2:
                spread += far * turned[1, f]
            gradients[begin + j, f + 1] += left * y[f] - weight * ratio * spread
        for i in range(j + 1):
            bend = weight * moments[2 + i + j]
            for f in range(n_packed):
                curvatures[place + f] += bend * design[f]
            place += n_packed


@compile_kernel(saved=False, **INNER)
def _add_cell(level, first, last, at, curved_at, n_directions, scores, weight, state, sums, work):  # type: ignore[no-untyped-def]
    """Add what one cell says of its variable."""
    slopes, y, covariance, design = state
    gradients, curvatures, chances = sums
    vectors, levels = work
    n_traits, n_levels = y.size, last - first
    average, spread, turned = vectors[0], vectors[1], vectors[2]
    for f in range(n_traits):
        average[f] = 0.0
    for k in range(n_levels):
        for f in range(n_traits):
            average[f] += chances[k] * slopes[first + k, f]
    # expected PMF under the normal posterior, to second order: half the excess of a logit's variance, times p
    total = 0.0
    for k in range(n_levels):
        for f in range(n_traits):
            spread[f] = slopes[first + k, f] - average[f]
        variance = 0.0
        for f in range(n_traits):
            left = 0.0
            for g in range(n_traits):
                left += covariance[f, g] * spread[g]
            variance += left * spread[f]
        levels[k] = variance
        total += chances[k] * variance
    largest = 0.0
    for k in range(n_levels):
        largest = max(largest, abs(0.5 * (levels[k] - total)))
    # where the spread is too large for the series
    damping = 1.0 if largest <= 0.5 else 0.5 / largest
    for k in range(n_levels):
        levels[k] = chances[k] * (1.0 + 0.5 * damping * (levels[k] - total))
    n_packed = design.size
    place = curved_at
    for j in range(n_directions):
        mean, expected = 0.0, 0.0
        for k in range(n_levels):
            mean += chances[k] * scores[at + k * n_directions + j]
            expected += levels[k] * scores[at + k * n_directions + j]
        left = weight * (scores[at + (level - first) * n_directions + j] - expected)
        gradients[j, 0] += left
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
            gradients[j, f + 1] += left * y[f] - weight * ratio * spread[f]
        if n_directions > MOST_JOINT:
            continue
        for i in range(j + 1):
            bend = 0.0
            for k in range(n_levels):
                bend += (
                    chances[k]
                    * (scores[at + k * n_directions + j] - mean)
                    * scores[at + k * n_directions + i]
                )
            bend *= weight
            for f in range(n_packed):
                curvatures[place + f] += bend * design[f]
            place += n_packed
    if n_directions > MOST_JOINT:
        bend = 0.0
        for k in range(n_levels):
            bend = max(bend, 2.0 * weight * chances[k] * (1.0 - chances[k]))
        for f in range(n_packed):
            curvatures[place + f] += bend * design[f]


@compile_kernel(**UNCOUNTED)
def add_trait_statistics(  # type: ignore[no-untyped-def]
    block, arrays, limits, layout, resting, sums, work
):
    """Fold samples in, and add the statistics of all variables; traits are standard normal.

    block: indptr, indices and weights, float64 (n_rows,). arrays: owners, int64 (n_levels,), offsets, int64
    (n_variables + 1,), base, float64 (n_levels,), and slopes, float64 (n_levels, n_traits). limits: as for
    `trait_folds.fold_rows`. layout: scores, float64, of all variables one after another, (n_levels, n_directions) each;
    starts, int64 (n_variables, 3): where those of a variable begin in scores, in the directions of all, and in the
    curvatures; n_directions, int64 (n_variables,); directions, float64 (n_all_directions, n_traits). resting: what
    `rest_cells` fills. sums: gradients, float64 (n_all_directions, n_traits + 1); curvatures, float64, of each variable
    the lower triangle of its pairs of directions, and for each pair that of (n_traits + 1, n_traits + 1), packed;
    moments, float64 (1 + n_traits + n_traits**2,): number of samples with anything observed, sum of their posterior
    means, and of the second moments of their traits; they grow. work: float64 (4, n_traits), (n_traits, n_traits),
    (n_levels,), (n_variables + 1, 5), (n_variables, 2, n_traits), (n_variables, 3), (n_traits, n_traits), (packed,),
    (3, n_traits) and (most levels,).

    Returns the log-likelihood, by Laplace's method, nats.
    """
    indptr, indices, weights = block
    owners, offsets, base, slopes = arrays
    scores, starts, n_directions, directions = layout
    gradients, curvatures, moments = sums
    vectors, curvature, chances, of_scores, turned, spans, covariance, design, more, levels = work
    along = of_scores[-1]
    y = vectors[3]
    n_traits = slopes.shape[1]
    log_likelihood = 0.0
    for r in range(indptr.size - 1):
        if indptr[r] == indptr[r + 1]:
            continue
        weight = weights[r]
        log_likelihood += weight * _find_traits(
            indices, indptr[r], indptr[r + 1], arrays, layout, resting, limits, (y, covariance),
            (vectors, curvature, chances, of_scores, turned, spans),
        )  # fmt: skip
        moments[0] += weight
        design[0] = 1.0
        at = 1
        for f in range(n_traits):
            moments[1 + f] += weight * y[f]
            design[at] = y[f]
            at += 1
            for g in range(f + 1):
                design[at] = y[f] * y[g] + covariance[f, g]
                at += 1
            for g in range(n_traits):
                second = y[f] * y[g] + covariance[f, g]
                moments[1 + n_traits + f * n_traits + g] += weight * second
        for t in range(indptr[r], indptr[r + 1]):
            level = indices[t]
            owner = owners[level]
            first, last = offsets[owner], offsets[owner + 1]
            n_each, begin = n_directions[owner], starts[owner, 1]
            if n_each == 0:
                continue
            if n_each > FEW_DIRECTIONS:
                own = chances[first:last]
                find_chances(base, slopes, first, last, y, own)
                _add_cell(
                    level, first, last, starts[owner, 0], starts[owner, 2], n_each, scores, weight,
                    (slopes, y, covariance, design),
                    (gradients[begin : begin + n_each], curvatures, own),
                    (more, levels),
                )  # fmt: skip
                continue
            _look_along(directions, begin, n_each, y, along)
            _weigh_scores(
                base,
                first,
                last,
                scores,
                starts[owner, 0],
                n_each,
                along,
                chances,
                of_scores[owner],
            )
            _add_simple_cell(
                level, first, last, starts[owner, 0], begin, starts[owner, 2], n_each, weight,
                (scores, chances, of_scores[owner], turned[owner], spans[owner]),
                (y, design), (gradients, curvatures), levels,
            )  # fmt: skip
    return log_likelihood
