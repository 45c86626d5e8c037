"""Posterior of the traits of one sample within a pass of EM: Newton's steps from where they are 0, then its mean.

Of one or two directions, cells are worked on by their scores, as in `pmflib.kernels.few_directions`, others level by
level. arrays, layout and resting are as for `pmflib.kernels.trait_statistics.add_trait_statistics`.
"""

import math

from pmflib.kernels.em_segments import INNER, PART, UNCOUNTED
from pmflib.kernels.few_directions import (
    FEW_DIRECTIONS,
    add_few_derivatives,
    add_few_skew,
    weigh_scores,
)
from pmflib.kernels.llvm.saved_code import compile_kernel
from pmflib.kernels.small_matrices import factorise, invert, solve
from pmflib.kernels.trait_cells import (
    add_curvature,
    add_derivatives,
    add_skew,
    average_slopes,
    find_chances,
    shift_to_mean,
)
from pmflib.kernels.trait_folds import LARGEST_STEP


@compile_kernel(**UNCOUNTED)
def rest_cells(arrays, gradients, curvatures, work):  # type: ignore[no-untyped-def]
    """Fill what cells say of traits that are 0: where Newton's steps begin, which is the same for all samples.

    arrays: as for `add_trait_statistics`. gradients: float64 (n_levels, n_traits), of a cell's log-probability by the
    traits. curvatures: float64 (n_variables, n_traits, n_traits), lower triangles of minus its second derivatives.
    work: float64 (2, n_traits) and (most levels,).
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
        average_slopes(slopes, first, last, chances, average)
        for level in range(first, last):
            for f in range(n_traits):
                gradients[level, f] = slopes[level, f] - average[f]
        add_curvature(slopes, first, last, chances, average, centred, curvatures[i])


@compile_kernel(saved=False, **INNER, forceinline=True)
def find_extent(owner, offsets, layout):  # type: ignore[no-untyped-def]
    """Where the levels of a variable begin and end, its scores begin, and its directions, and the number of these."""
    _, starts, n_directions, _ = layout
    first, last = offsets[owner], offsets[owner + 1]
    return first, last, starts[owner, 0], starts[owner, 1], n_directions[owner]


@compile_kernel(saved=False, **INNER)
def find_traits(indices, start, stop, arrays, layout, resting, limits, state, work):  # type: ignore[no-untyped-def]
    """Mean of the posterior of one sample's traits, Laplace's covariance, and the log-probability of its cells, nats.

    state: y and covariance, filled. work: vectors; curvature; chances, of all levels; moments and spans, of all
    variables: of the PMFs near the peak, ``V v_j`` and ``v' V v``.
    """
    y, covariance = state
    vectors, curvature = work[0], work[1]
    gradient, step = vectors[0], vectors[1]
    for f in range(y.size):
        y[f] = 0.0
    _begin(y, gradient, curvature)
    for t in range(start, stop):
        owner = arrays[0][indices[t]]
        for f in range(y.size):
            gradient[f] += resting[0][indices[t], f]
            for g in range(f + 1):
                curvature[f, g] += resting[1][owner, f, g]
    _step(gradient, curvature, step, y)
    found = 0.0
    for _ in range(limits[0]):
        found = _begin(y, gradient, curvature)
        found = _add_cells(found, indices, start, stop, arrays, layout, y, work)
        largest, gained = _step(gradient, curvature, step, y)
        found += gained
        if largest < limits[1]:
            break
    invert(curvature, step, covariance)
    _move_to_mean(indices, start, stop, arrays, layout, y, covariance, work)
    return found


@compile_kernel(saved=False, **INNER, forceinline=True)
def _begin(y, gradient, curvature):  # type: ignore[no-untyped-def]
    """Fill the derivatives of the prior's log-density at y; returns it, less that of 0."""
    found = 0.0
    for f in range(y.size):
        gradient[f] = -y[f]
        found -= 0.5 * y[f] * y[f]
        for g in range(f + 1):
            curvature[f, g] = 1.0 if f == g else 0.0
    return found


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


@compile_kernel(saved=False, **PART)
def _add_cells(found, indices, start, stop, arrays, layout, y, work):  # type: ignore[no-untyped-def]
    """Add the derivatives of the cells' log-probabilities at y; returns what was found, and these added to it."""
    owners, offsets, base, slopes = arrays
    vectors, curvature, chances, moments, _, _ = work
    gradient, step, average, along = vectors[0], vectors[1], vectors[2], moments[-1]
    sums = (gradient, curvature)
    for t in range(start, stop):
        level = indices[t]
        owner = owners[level]
        extent = find_extent(owner, offsets, layout)
        first, last, n_directions = extent[0], extent[1], extent[4]
        if n_directions == 0:
            continue
        if n_directions > FEW_DIRECTIONS:
            own = chances[first:last]
            found += add_derivatives(level, first, last, base, slopes, y, own, average, step, sums)
        else:
            own_moments = moments[owner]
            weigh_scores(extent, base, layout, y, along, chances, own_moments)
            found += add_few_derivatives(level, extent, layout, chances, own_moments, step, sums)
    return found


@compile_kernel(saved=False, **PART)
def _move_to_mean(indices, start, stop, arrays, layout, y, covariance, work):  # type: ignore[no-untyped-def]
    """Move traits from the peak of their posterior to its mean, by the third derivative of its logarithm."""
    owners, offsets, _, slopes = arrays
    vectors, _, chances, moments, turned, spans = work
    pull, centred, average = vectors[0], vectors[1], vectors[2]
    for f in range(y.size):
        pull[f] = 0.0
    for t in range(start, stop):
        owner = owners[indices[t]]
        extent = find_extent(owner, offsets, layout)
        first, last, n_directions = extent[0], extent[1], extent[4]
        if n_directions == 0:
            continue
        if n_directions > FEW_DIRECTIONS:
            own = chances[first:last]
            add_skew(slopes, first, last, own, covariance, average, centred, pull)
        else:
            add_few_skew(
                extent,
                layout,
                chances,
                moments[owner],
                covariance,
                turned[owner],
                spans[owner],
                pull,
            )
    shift_to_mean(covariance, pull, y)
