"""Fold-in of samples under a trait model: posterior mean and covariance of the traits, and predictions from them.

Level r of variable i has the logit ``base[r] + slopes[r] . y``, where y are the normally distributed traits of a
sample. The log posterior of y is concave, so Newton's method finds its mode; the inverse of its negative Hessian there
is Laplace's approximation of the covariance. `pmflib.families.traits.kernels.trait_passes.find_traits` takes the same
steps in EM passes, where the prior is standard normal and slopes are combinations of few directions.
"""

import math

import numpy as np

from pmflib.base.arrays import FloatArray
from pmflib.base.compiled.saved_code import compile_kernel
from pmflib.families.traits.kernels.trait_cells import (
    add_derivatives,
    add_skew,
    find_chances,
    invert,
    shift_to_mean,
    take_step,
)
from pmflib.model.kernels.em_arguments import INNER, UNCOUNTED

NEGLIGIBLE = 1e-10
"""Variance below which a logit is treated as constant."""
WIDE = 1.0
"""Standard deviation of a logit from which the larger set of nodes is used."""
FEW, MANY = 5, 21
"""Numbers of quadrature nodes per direction."""


@compile_kernel(saved=False, **INNER)
def _move_to_mean(indices, start, stop, arrays, y, covariance, work):  # type: ignore[no-untyped-def]
    """Move traits from the posterior mode to the mean, using the third derivative of the log posterior."""
    owners, offsets, base, slopes = arrays[0], arrays[1], arrays[2], arrays[3]
    vectors, _, chances = work
    pull, average, centred = vectors[0], vectors[1], vectors[2]
    for f in range(y.size):
        pull[f] = 0.0
    for t in range(start, stop):
        owner = owners[indices[t]]
        first, last = offsets[owner], offsets[owner + 1]
        find_chances(base, slopes, first, last, y, chances)
        add_skew(slopes, first, last, chances, covariance, average, centred, pull)
    shift_to_mean(covariance, pull, y)


@compile_kernel(saved=False, **INNER)
def fold_row(indices, start, stop, arrays, limits, y, covariance, work):  # type: ignore[no-untyped-def]
    """Find the posterior mean of one sample's traits, starting from y, and Laplace's covariance at the mode.

    arrays, limits and work are those of `fold_rows`. Returns the log-probability of the observed cells by Laplace's
    method, nats.
    """
    owners, offsets, base, slopes, mean, precision, log_precision = arrays
    vectors, curvature, chances = work
    gradient, average, centred = vectors[0], vectors[1], vectors[2]
    n_traits = y.size
    found = 0.0
    for _ in range(limits[0]):
        found = 0.5 * log_precision
        for f in range(n_traits):
            gradient[f] = 0.0
            for g in range(n_traits):
                gradient[f] -= precision[f, g] * (y[g] - mean[g])
                curvature[f, g] = precision[f, g]
            found += 0.5 * gradient[f] * (y[f] - mean[f])
        for t in range(start, stop):
            level = indices[t]
            first, last = offsets[owners[level]], offsets[owners[level] + 1]
            found += add_derivatives(
                level, first, last, base, slopes, y, chances, average, centred,
                (gradient, curvature),
            )  # fmt: skip
        largest, gained = take_step(gradient, curvature, centred, y)
        found += gained
        if largest < limits[1]:
            break
    invert(curvature, centred, covariance)
    _move_to_mean(indices, start, stop, arrays, y, covariance, work)
    return found


@compile_kernel(**UNCOUNTED)
def fold_rows(indptr, indices, arrays, limits, modes, covariances, log_probs, work):  # type: ignore[no-untyped-def]
    """Fold in samples.

    indptr: int64 (n_rows + 1,), and indices: int32 (n_observed,), as in `pmflib.base.blocks.SparseBlock`. arrays:
    owners, int64 (n_levels,), offsets, int64 (n_variables + 1,), base, float64 (n_levels,), slopes, float64 (n_levels,
    n_traits), mean (n_traits,) and precision (n_traits, n_traits) of the prior, and the log determinant of the
    precision. limits: maximum number of Newton steps, at least 1, and the step size, in any trait, that ends them.
    modes: float64 (n_rows, n_traits), starting values, overwritten. Filled are covariances (n_rows, n_traits, n_traits)
    and log_probs (n_rows,), nats. work: float64 (3, n_traits), (n_traits, n_traits) and (most levels of a variable,).
    """
    for r in range(indptr.size - 1):
        log_probs[r] = fold_row(
            indices, indptr[r], indptr[r + 1], arrays, limits, modes[r], covariances[r], work
        )
        if indptr[r] == indptr[r + 1]:
            log_probs[r] = 0.0


@compile_kernel(saved=False, **INNER)
def _spread_logits(slopes, first, n_levels, covariance, work, spread, roots):  # type: ignore[no-untyped-def]
    """Compute a pivoted Cholesky factor of the covariance of logits minus the first one; returns its rank."""
    n_traits = len(covariance)
    for k in range(n_levels):
        for f in range(n_traits):
            work[f] = 0.0
            for g in range(n_traits):
                work[f] += covariance[f, g] * (slopes[first + k, g] - slopes[first, g])
        for j in range(k + 1):
            spread[k, j] = 0.0
            for f in range(n_traits):
                spread[k, j] += work[f] * (slopes[first + j, f] - slopes[first, f])
            spread[j, k] = spread[k, j]
    rank = 0
    while rank < min(n_traits, n_levels - 1):
        best = 0
        for k in range(n_levels):
            if spread[k, k] > spread[best, best]:
                best = k
        if spread[best, best] < NEGLIGIBLE:
            break
        peak = math.sqrt(spread[best, best])
        for k in range(n_levels):
            roots[rank, k] = spread[k, best] / peak
        for k in range(n_levels):
            for j in range(n_levels):
                spread[k, j] -= roots[rank, k] * roots[rank, j]
        rank += 1
    return rank


@compile_kernel(saved=False, **INNER)
def _choose_nodes(root):  # type: ignore[no-untyped-def]
    """Choose the range of nodes: few if no logit varies much along any direction, otherwise many."""
    largest = 0.0
    for k in range(root.size):
        largest = max(largest, abs(root[k]))
    return (0, FEW) if largest < WIDE else (FEW, FEW + MANY)


@compile_kernel(saved=False, **INNER)
def _add_point(logits, weight, chances, out):  # type: ignore[no-untyped-def]
    """Add the PMF at a point, times the weight of the point."""
    peak, total = -math.inf, 0.0
    for k in range(out.size):
        peak = max(peak, logits[k])
    for k in range(out.size):
        chances[k] = math.exp(logits[k] - peak)
        total += chances[k]
    for k in range(out.size):
        out[k] += weight * chances[k] / total


@compile_kernel(**UNCOUNTED)
def predict_cells(rows, variables, offsets, base, slopes, modes, covariances, nodes, out, work):  # type: ignore[no-untyped-def]
    """Predict PMFs of variables in folded-in samples, averaged over the normal posterior of the traits.

    rows and variables: int64 (n_cells,), indices into modes and covariances, and into offsets, as in `fold_rows`.
    nodes: `NODES`, ``FEW`` and ``MANY`` Gauss-Hermite nodes for a standard normal variable and their weights; each set
    of weights sums to 1. Logits that vary in one or two directions, such as those of ordered levels, are averaged over
    a product grid; others over two points per direction, which is exact up to third powers. out: float64 (n_cells, most
    levels), filled up to the number of levels of the variable. work: float64 (4, most levels, or traits if there are
    more) and (2, most levels, most levels).
    """
    vectors, tables = work
    for c in range(rows.size):
        first, last = offsets[variables[c]], offsets[variables[c] + 1]
        n_levels = last - first
        found, logits, chances = out[c, :n_levels], vectors[0], vectors[1]
        y, centre = modes[rows[c]], vectors[2]
        for k in range(n_levels):
            found[k] = 0.0
            centre[k] = base[first + k]
            for f in range(y.size):
                centre[k] += slopes[first + k, f] * y[f]
        roots = tables[1]
        rank = _spread_logits(
            slopes, first, n_levels, covariances[rows[c]], vectors[3], tables[0], roots
        )
        if rank == 0:
            _add_point(centre, 1.0, chances, found)
        elif rank <= 2:
            begin, end = _choose_nodes(roots[0, :n_levels])
            start, stop = _choose_nodes(roots[1, :n_levels]) if rank == 2 else (0, 1)
            for i in range(begin, end):
                for j in range(start, stop):
                    weight = nodes[1, i]
                    for k in range(n_levels):
                        logits[k] = centre[k] + nodes[0, i] * roots[0, k]
                    if rank == 2:
                        weight *= nodes[1, j]
                        for k in range(n_levels):
                            logits[k] += nodes[0, j] * roots[1, k]
                    _add_point(logits, weight, chances, found)
        else:
            reach = math.sqrt(rank)
            for i in range(rank):
                for sign in range(2):
                    for k in range(n_levels):
                        logits[k] = centre[k] + (1 - 2 * sign) * reach * roots[i, k]
                    _add_point(logits, 0.5 / rank, chances, found)


def _tabulate(n_nodes: int) -> FloatArray:
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return np.stack([nodes, weights / weights.sum()])


NODES = np.concatenate([_tabulate(FEW), _tabulate(MANY)], axis=1)
