"""EM pass under a trait model: posteriors of the traits, and sufficient statistics for the M-step.

The logit of level r of variable i is ``base[r] + sum_j scores[r, j] v_ij . y``, where j runs over the directions of the
variable: one for two levels, two for ordered levels, and one less than the number of levels for nominal ones. The
traits y of a sample have mean m and covariance V. With p the PMF at m, e its mean score and C the covariance of the
scores, the gradient of ``(b, v)_ij`` is ``(s - e')_j (1, m) - (0, sum_l C_jl V v_il)``, where e' corrects for the
variance of y to second order, and the negative second derivative is ``C x A``, A = ``(1, m)(1, m)' + (0, V)``. For a
variable with many directions, which are orthonormal contrasts, C is replaced by an upper bound of its eigenvalues,
``max 2 p (1 - p)``.

For one or two directions, all contributions of a cell depend on the scores and on ``v' V v``: few numbers, whatever the
number of levels. Other cells are processed level by level.
"""

from pmflib.base.compiled.saved_code import compile_kernel
from pmflib.families.traits.kernels.trait_cells import (
    FEW_DIRECTIONS,
    add_curvature,
    add_derivatives,
    add_few_derivatives,
    add_few_scores,
    add_few_skew,
    add_many_scores,
    add_skew,
    average_slopes,
    find_chances,
    invert,
    shift_to_mean,
    take_step,
    weigh_scores,
)
from pmflib.model.kernels.em_arguments import INNER, PART, UNCOUNTED


@compile_kernel(**UNCOUNTED)
def rest_cells(arrays, gradients, curvatures, work):  # type: ignore[no-untyped-def]
    """Compute derivatives of all cells at traits of 0, where Newton's method starts for every sample.

    arrays: as for `add_trait_statistics`. gradients: float64 (n_levels, n_traits), gradient of a cell's log-probability
    in the traits. curvatures: float64 (n_variables, n_traits, n_traits), lower triangles of the negative Hessians.
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
    """Return a variable's first and last level, the start of its scores and directions, and their number."""
    _, starts, n_directions, _ = layout
    first, last = offsets[owner], offsets[owner + 1]
    return first, last, starts[owner, 0], starts[owner, 1], n_directions[owner]


@compile_kernel(saved=False, **INNER)
def find_traits(indices, start, stop, arrays, layout, resting, limits, state, work):  # type: ignore[no-untyped-def]
    """Find the posterior mean of one sample's traits, Laplace's covariance, and the log-probability of its cells.

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
    take_step(gradient, curvature, step, y)
    found = 0.0
    for _ in range(limits[0]):
        found = _begin(y, gradient, curvature)
        found = _add_cells(found, indices, start, stop, arrays, layout, y, work)
        largest, gained = take_step(gradient, curvature, step, y)
        found += gained
        if largest < limits[1]:
            break
    invert(curvature, step, covariance)
    _move_to_mean(indices, start, stop, arrays, layout, y, covariance, work)
    return found


@compile_kernel(saved=False, **INNER, forceinline=True)
def _begin(y, gradient, curvature):  # type: ignore[no-untyped-def]
    """Fill the derivatives of the log prior at y; returns the log prior relative to y = 0."""
    found = 0.0
    for f in range(y.size):
        gradient[f] = -y[f]
        found -= 0.5 * y[f] * y[f]
        for g in range(f + 1):
            curvature[f, g] = 1.0 if f == g else 0.0
    return found


@compile_kernel(saved=False, **PART)
def _add_cells(found, indices, start, stop, arrays, layout, y, work):  # type: ignore[no-untyped-def]
    """Add the derivatives of the cells' log-probabilities at y, and return ``found`` plus the log-probabilities."""
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
    """Move traits from the posterior mode to the mean, using the third derivative of the log posterior."""
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


@compile_kernel(**UNCOUNTED)
def add_trait_statistics(  # type: ignore[no-untyped-def]
    block, arrays, limits, layout, resting, sums, work
):
    """Fold in samples and add the statistics of all variables; the prior of the traits is standard normal.

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

    Returns the log-likelihood by Laplace's method, nats.
    """
    indptr, indices, weights = block
    vectors, curvature, chances, of_scores, turned, spans, covariance, design, more, levels = work
    y, moments = vectors[3], sums[2]
    log_likelihood = 0.0
    for r in range(indptr.size - 1):
        start, stop, weight = indptr[r], indptr[r + 1], weights[r]
        if start == stop:
            continue
        log_likelihood += weight * find_traits(
            indices, start, stop, arrays, layout, resting, limits, (y, covariance),
            (vectors, curvature, chances, of_scores, turned, spans),
        )  # fmt: skip
        _add_moments(y, covariance, weight, moments, design)
        _add_scores(
            indices, start, stop, weight, arrays, layout, (y, covariance, design), sums,
            (chances, of_scores, turned, spans, more, levels),
        )  # fmt: skip
    return log_likelihood


@compile_kernel(saved=False, **PART)
def _add_moments(y, covariance, weight, moments, design):  # type: ignore[no-untyped-def]
    """Add the moments of one sample's traits, and fill design with the packed second moments of (1, traits)."""
    n_traits = y.size
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


@compile_kernel(saved=False, **PART)
def _add_scores(indices, start, stop, weight, arrays, layout, state, sums, work):  # type: ignore[no-untyped-def]
    """Add the contributions of one sample's cells to the sums of their variables."""
    owners, offsets, base, slopes = arrays
    scores, starts, _, _ = layout
    y, covariance, design = state
    derivatives = (sums[0], sums[1])
    chances, moments, turned, spans, vectors, levels = work
    for t in range(start, stop):
        level = indices[t]
        owner = owners[level]
        extent = find_extent(owner, offsets, layout)
        first, last, n_directions = extent[0], extent[1], extent[4]
        own = chances[first:last]
        if n_directions == 0:
            continue
        if n_directions > FEW_DIRECTIONS:
            find_chances(base, slopes, first, last, y, own)
            add_many_scores(
                level, extent, starts[owner, 2], weight, scores,
                (own, slopes, y, covariance, design), derivatives, (vectors, levels),
            )  # fmt: skip
        else:
            weigh_scores(extent, base, layout, y, moments[-1], chances, moments[owner])
            add_few_scores(
                level, extent, starts[owner, 2], weight, scores,
                (own, moments[owner], turned[owner], spans[owner]), (y, design), derivatives, levels,
            )  # fmt: skip
