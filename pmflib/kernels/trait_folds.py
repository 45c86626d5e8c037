"""Fold-in of samples under a trait model: where the traits of each most probably are, how sure that is, what follows.

The level r of variable i has the logit ``base[r] + slopes[r] . y``, y the traits of a sample, which are normal. The
logarithm of the posterior of y is concave, so Newton's steps find its peak; the inverse of minus its second derivative
there is Laplace's approximation of the covariance. `pmflib.kernels.trait_passes.find_traits` takes the same steps for
EM passes, where the prior is standard normal and few directions stand for the slopes.
"""

import math

import numpy as np

from pmflib.core.arrays import FloatArray
from pmflib.kernels.em_arguments import INNER, UNCOUNTED
from pmflib.kernels.llvm.saved_code import compile_kernel
from pmflib.kernels.trait_cells import (
    add_derivatives,
    add_skew,
    find_chances,
    invert,
    shift_to_mean,
    take_step,
)

NEGLIGIBLE = 1e-10
"""Variance of a logit below which it is known."""
WIDE = 1.0
"""Standard deviation of a logit from which on few nodes do not do."""
FEW, MANY = 5, 21
"""Nodes along a direction."""


@compile_kernel(saved=False, **INNER)
def _move_to_mean(indices, start, stop, arrays, y, covariance, work):  # type: ignore[no-untyped-def]
    """Move traits from the peak of their posterior to its mean, by the third derivative of its logarithm."""
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
    """Mean of the posterior of one sample's traits, found from y on, and Laplace's covariance at its peak.

    arrays, limits and work are those of `fold_rows`. Returns the logarithm of the probability of what is observed, by
    Laplace's method, nats.
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
    """Fold samples in.

    indptr: int64 (n_rows + 1,), and indices: int32 (n_observed,), as in `pmflib.core.blocks.SparseBlock`. arrays:
    owners, int64 (n_levels,), offsets, int64 (n_variables + 1,), base, float64 (n_levels,), slopes, float64 (n_levels,
    n_traits), mean (n_traits,) and precision (n_traits, n_traits) of the prior, and the logarithm of the determinant of
    the latter. limits: largest number of Newton steps, at least 1, and the step, in any trait, below which it is the
    last. modes: float64 (n_rows, n_traits), where to begin, changed. Filled are covariances (n_rows, n_traits,
    n_traits) and log_probs (n_rows,), nats. work: float64 (3, n_traits), (n_traits, n_traits) and (most levels of a
    variable,).
    """
    for r in range(indptr.size - 1):
        log_probs[r] = fold_row(
            indices, indptr[r], indptr[r + 1], arrays, limits, modes[r], covariances[r], work
        )
        if indptr[r] == indptr[r + 1]:
            log_probs[r] = 0.0


@compile_kernel(saved=False, **INNER)
def _spread_logits(slopes, first, n_levels, covariance, work, spread, roots):  # type: ignore[no-untyped-def]
    """Pivoted Cholesky factor of the covariance of logits less that of the first level; returns its rank."""
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
    """Range of the nodes: few where no logit varies much along a direction, else many."""
    largest = 0.0
    for k in range(root.size):
        largest = max(largest, abs(root[k]))
    return (0, FEW) if largest < WIDE else (FEW, FEW + MANY)


@compile_kernel(saved=False, **INNER)
def _add_point(logits, weight, chances, out):  # type: ignore[no-untyped-def]
    """Add a point's PMF, times its weight."""
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
    """PMF of variables in samples that were folded in, averaged over the normal posterior of their traits.

    rows and variables: int64 (n_cells,), of modes and covariances, and of offsets, as in `fold_rows`. nodes: `NODES`,
    ``FEW`` and ``MANY`` of Gauss and Hermite for a standard normal variable, and their weights, of which each set sums
    to 1. Logits that vary in one or two directions, which those of ordered levels do, are averaged over the product of
    nodes; others over two points in each direction, exact up to third powers. out: float64 (n_cells, most levels),
    filled up to the levels of the variable. work: float64 (4, most levels, or traits if these are more) and (2, most
    levels, most levels).
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
