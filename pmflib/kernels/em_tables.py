"""Tables of scaled probabilities by entry, and masses by entry brought back to levels."""

from pmflib.kernels.em_segments import OUTER
from pmflib.kernels.llvm.saved_code import compile_kernel


@compile_kernel(**OUTER)
def fill_tables(factors, log_maxima, levels, least, table, log_scales):  # type: ignore[no-untyped-def]
    """Multiply scaled probabilities by entry.

    factors: float64 (n_levels, rank), largest of each row 1. log_maxima: (n_levels,), what was taken out, nats.
    levels: int32 (n_entries, group), levels that an entry stands for, -1 where none. Filled are table (n_entries,
    padded), at least ``least``, the padding left as it is, and log_scales (n_entries,): what was taken out of each
    entry, nats.
    """
    rank = factors.shape[1]
    for entry in range(levels.shape[0]):
        log_scales[entry] = 0.0
        for f in range(rank):
            table[entry, f] = 1.0
        for k in range(levels.shape[1]):
            level = levels[entry, k]
            if level >= 0:
                log_scales[entry] += log_maxima[level]
                for f in range(rank):
                    table[entry, f] *= factors[level, f]
        for f in range(rank):
            if table[entry, f] < least:
                table[entry, f] = least


@compile_kernel(**OUTER)
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
