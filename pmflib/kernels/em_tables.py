"""Tables of scaled probabilities by entry, and masses by entry brought back to levels."""

import math

import numpy as np
from numba import njit


@njit(nogil=True)
def fill_levels(sizes, gap, group, bases, steps, levels):  # type: ignore[no-untyped-def]
    """Number the combinations of levels of every ``group`` neighbouring variables.

    sizes: int64 (n_variables,). gap: 1 where "not observed" is a digit (the first), else 0. Filled are bases, int32
    (n_lists,): a list's entry where every code is 0; steps, int32 (n_variables,): entries between two codes of a
    variable; levels, int32 (n_entries, group): levels that an entry stands for, -1 where none.
    """
    n_variables = sizes.size
    start, offset = 0, 0
    for j in range(bases.size):
        first, last = j * group, min((j + 1) * group, n_variables)
        n_entries = 1
        for v in range(last - 1, first - 1, -1):
            steps[v] = n_entries
            n_entries *= sizes[v] + gap
        bases[j] = start
        for v in range(first, last):
            bases[j] += gap * steps[v]
            for entry in range(n_entries):
                code = entry // steps[v] % (sizes[v] + gap) - gap
                levels[start + entry, v - first] = offset + code if code >= 0 else -1
            offset += sizes[v]
        start += n_entries


@njit(nogil=True)
def fill_tables(log_prior, log_factors, levels, least, prior, scaled, table, log_scales):  # type: ignore[no-untyped-def]
    """Scale every level's probabilities to a maximum of 1, and multiply them by entry.

    Subtracted in place from log_prior and log_factors: the logarithms of the maxima. Filled are prior (padded,) and
    table (n_entries, padded), at least ``least`` and 0 in the padding; scaled is work space, of the shape of
    log_factors; log_scales (n_entries,): what was taken out of each entry, nats. Returns what was taken out of the
    prior.
    """
    n_levels, rank = log_factors.shape
    log_scale = log_prior.max()
    for f in range(rank):
        log_prior[f] -= log_scale
        prior[f] = max(math.exp(log_prior[f]), least)
    log_maxima = np.empty(n_levels)
    for level in range(n_levels):
        largest = log_factors[level, 0]
        for f in range(1, rank):
            largest = max(largest, log_factors[level, f])
        log_maxima[level] = largest
        for f in range(rank):
            log_factors[level, f] -= largest
            scaled[level, f] = math.exp(log_factors[level, f])
    for entry in range(levels.shape[0]):
        row = table[entry]
        row[:rank] = 1.0
        for k in range(levels.shape[1]):
            level = levels[entry, k]
            if level >= 0:
                log_scales[entry] += log_maxima[level]
                for f in range(rank):
                    row[f] *= scaled[level, f]
        for f in range(rank):
            row[f] = max(row[f], least)
    return log_scale


@njit(nogil=True)
def collect_masses(mass, levels, log_scales, level_mass):  # type: ignore[no-untyped-def]
    """Add masses by entry to level_mass (n_levels, rank); returns the sum of masses times log_scales."""
    rank = level_mass.shape[1]
    weighted = 0.0
    for entry in range(levels.shape[0]):
        total = 0.0
        for f in range(rank):
            total += mass[entry, f]
        if total > 0:
            weighted += total * log_scales[entry]
            for k in range(levels.shape[1]):
                level = levels[entry, k]
                if level >= 0:
                    for f in range(rank):
                        level_mass[level, f] += mass[entry, f]
    return weighted
