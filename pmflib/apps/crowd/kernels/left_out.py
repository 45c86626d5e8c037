"""Labels of tasks weighed under matrices without the task's own share, and added up by class: loops over labels.

A mean logarithm under a matrix is a digamma function of a cell less one of its column. Of all cells both are taken
once, in vectors; taking out a task's share moves each of them by little, and by a short series where the number is
large. So a label costs a few multiplications a class, not two digamma functions.
"""

import math

import numpy as np

from pmflib.apps.crowd.kernels.digamma import FURTHER, fall_short
from pmflib.base.arrays import FLOOR
from pmflib.base.compiled.saved_code import compile_kernel
from pmflib.model.kernels.em_arguments import INNER, OUTER

LARGE = 32.0
"""Numbers from which on the series is right to 1e-8, if at most one is taken out."""
LEAST = float(np.finfo(np.float64).eps)
"""What is left of a number, at least."""
LOWEST = math.log(FLOOR)
"""Log-weight of a label, at least."""
NOTHING = 1e-9
"""Share of a number below which taking it out is not seen."""


@compile_kernel(saved=False, **INNER)
def _take_out(known, value, share):  # type: ignore[no-untyped-def]
    """digamma(value - share), where digamma(value) is known."""
    if share <= NOTHING * value:
        return known
    if value > LARGE and share <= 1.0:
        # digamma(x) is about log(x - 1 / 2) + 1 / (24 (x - 1 / 2)**2)
        middle = value - 0.5 - 0.5 * share
        z = 0.5 * share / middle
        squared = z * z
        bend = share / (12.0 * middle * middle * middle)
        return known - 2.0 * z * (1.0 + squared / 3.0) + bend
    left = max(value - share, LEAST)
    return math.log(left + FURTHER) - fall_short(left)[0]


@compile_kernel(**OUTER)
def weigh_left_out(  # type: ignore[no-untyped-def]
    indptr, indices, n_classes, shares, cells, totals, logs, log_totals, scores, weights, means
):
    """Weigh the labels of tasks by class, without each task's own share, and add them up.

    indptr: int64 (n_rows + 1,). indices: int32 (n_labels,), levels ``worker * n_classes + class``. shares: (n_rows,
    n_states), what is taken out. cells, totals: (n_levels, n_states) and (n_workers, n_states), labels by state, and
    all of each worker. logs, log_totals: digamma functions of both. Filled are scores (n_rows, n_states), the sums of
    the weights, nats, and, if they are not empty, weights and means (n_labels, n_states): mean logarithms and means of
    the probability of each label. All are float64.
    """
    n_states = shares.shape[1]
    kept = weights.size > 0
    for row in range(shares.shape[0]):
        for k in range(n_states):
            scores[row, k] = 0.0
        for i in range(indptr[row], indptr[row + 1]):
            level = indices[i]
            worker = level // n_classes
            for k in range(n_states):
                share = shares[row, k]
                weight = _take_out(logs[level, k], cells[level, k], share)
                weight -= _take_out(log_totals[worker, k], totals[worker, k], share)
                weight = max(weight, LOWEST)
                scores[row, k] += weight
                if kept:
                    weights[i, k] = weight
                    left = max(cells[level, k] - share, LEAST)
                    means[i, k] = min(left / max(totals[worker, k] - share, LEAST), 1.0)


@compile_kernel(**OUTER)
def add_shares(indptr, indices, shares, label_mass):  # type: ignore[no-untyped-def]
    """Add the shares of each row (n_rows, n_states) to label_mass (n_levels, n_states), at its levels."""
    for row in range(shares.shape[0]):
        for i in range(indptr[row], indptr[row + 1]):
            for k in range(shares.shape[1]):
                label_mass[indices[i], k] += shares[row, k]


@compile_kernel(**OUTER)
def normalise_logs(logs):  # type: ignore[no-untyped-def]
    """Turn log-weights (n_rows, n_states), float64, into probabilities that add up to 1 in each row, in place."""
    for row in range(logs.shape[0]):
        peak = -math.inf
        for k in range(logs.shape[1]):
            peak = max(peak, logs[row, k])
        total = 0.0
        for k in range(logs.shape[1]):
            logs[row, k] = math.exp(logs[row, k] - peak)
            total += logs[row, k]
        for k in range(logs.shape[1]):
            logs[row, k] /= total


@compile_kernel(**OUTER)
def mix_votes(indptr, indices, share, posterior):  # type: ignore[no-untyped-def]
    """Mix the posterior of each row (n_rows, n_classes), float64, with its shares of the votes, which count for share.

    indptr, indices: as for `weigh_left_out`. A row without labels stays as it is.
    """
    n_classes = posterior.shape[1]
    for row in range(posterior.shape[0]):
        start, stop = indptr[row], indptr[row + 1]
        if stop > start:
            for k in range(n_classes):
                posterior[row, k] *= 1.0 - share
            for i in range(start, stop):
                posterior[row, indices[i] % n_classes] += share / (stop - start)
