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

from pmflib.kernels.em_segments import PART, UNCOUNTED
from pmflib.kernels.few_directions import FEW_DIRECTIONS, add_few_scores, weigh_scores
from pmflib.kernels.llvm.saved_code import compile_kernel
from pmflib.kernels.many_directions import add_many_scores
from pmflib.kernels.trait_cells import find_chances
from pmflib.kernels.trait_posteriors import find_extent, find_traits


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
    """Add the moments of one sample's traits, and fill design: packed, the second moments of 1 and the traits."""
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
    """Add what the cells of one sample say of their variables."""
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
