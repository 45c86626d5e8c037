"""What the row kernels of EM take: samples, scaled tables, and segments where products may lose something."""

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from pmflib.core.arrays import FloatArray, IntArray, StrataArray
from pmflib.kernels.llvm.saved_code import compile_kernel

Shape: TypeAlias = tuple[int, int, int, int]
"""Width of a vector, vectors per panel, panels in a table row, and whether there are no LLVM vectors."""
ALIKE = np.empty(0, np.int32)
"""Strata of rows that all have the same prior."""


class Lists(NamedTuple):
    """Samples as lists of table rows (`pmflib.kernels.em_rows`): row s owns ``entries[starts[s]:stops[s]]``."""

    entries: npt.NDArray[np.int32]
    """int32 of shape (n_listed,), entry numbers."""
    starts: IntArray
    """int64 of shape (n_rows,)."""
    stops: IntArray
    """int64 of shape (n_rows,)."""
    strata: StrataArray
    """int32 of shape (n_rows,): which prior each row has; or `ALIKE`."""


class Tables(NamedTuple):
    """A model, scaled and by entry, as `pmflib.kernels.em_arguments.fill_tables` leaves it."""

    rows: FloatArray
    """float64 of shape (n_entries * padded,): the table, row after row."""
    priors: FloatArray
    """float64 of shape (n_strata * padded,)."""
    levels: npt.NDArray[np.int32]
    """int32 of shape (n_entries, group): levels that an entry stands for, -1 where none."""
    log_priors: FloatArray
    """float64 of shape (n_strata, rank): scaled, nats."""
    log_factors: FloatArray
    """float64 of shape (n_levels, rank): scaled, nats."""


class Work(NamedTuple):
    """Work space of a batch of rows, all float64; n_batch is a multiple of 8."""

    products: FloatArray
    """Shape ((n_batch + 1) * padded,)."""
    sums: FloatArray
    """Shape (n_batch * n_panels * width,)."""
    totals: FloatArray
    """Shape (n_batch * n_panels,)."""
    logs: FloatArray
    """Shape (n_batch,)."""
    scales: FloatArray
    """Shape (n_batch,)."""


class Masses(NamedTuple):
    """Posterior masses, and what is left of the log-likelihood: eight products, as fractions and binary exponents."""

    by_entry: FloatArray
    """float64 of shape (n_entries * padded,)."""
    by_state: FloatArray
    """float64 of shape (padded,)."""
    fractions: FloatArray
    """float64 of shape (8,), in [1, 2)."""
    exponents: IntArray
    """int64 of shape (8,)."""


OUTER: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
INNER = OUTER | {"no_cpython_wrapper": True}
"""Options of functions called from Python, and of those only called from them: what is not needed is not compiled."""
PART = INNER | {"inline": "always"}
"""Options of what is a function of its own for those who read it alone: numba compiles it as a part of its one caller,
which takes less time than to compile both."""
UNCOUNTED = OUTER | {"_nrt": False}
"""Options of functions that allocate nothing, nor do those they call: numba counts no references to their arguments. It
would for every batch, in locked instructions, which wait until all that was written has left the processor's core."""

THRESHOLD = 2.0**-300
"""About 5e-91: what falls below, relative to the largest product of a segment, is known only to be below."""
MARGIN = 1e30
"""A row's products are trusted where their sum is this many times what may have been lost."""
LONG, SHORT = 64, 16
"""Table rows multiplied before products are brought back to about 1: at first, and if all of them vanish."""
LOG_2 = math.log(2.0)


@compile_kernel(saved=False, **INNER)
def _rescale(values, start, bounded, padded):  # type: ignore[no-untyped-def]
    """Scale products so that the largest is in [0.5, 1); returns the binary exponent taken out.

    A product at or below the threshold becomes an upper bound of itself, is marked by a 1 from ``values[bounded]`` on,
    and stays so.
    """
    peak = 0.0
    for f in range(padded):
        peak = max(peak, values[start + f])
    exponent = math.frexp(peak)[1]
    scale = math.ldexp(1.0, -exponent)
    for f in range(padded):
        if values[start + f] <= THRESHOLD:
            values[bounded + f] = 1.0
        values[start + f] = max(values[start + f] * scale, THRESHOLD)
    return exponent


@compile_kernel(saved=False, **INNER)
def _drop_lost(values, start, bounded, padded):  # type: ignore[no-untyped-def]
    """Set products that are known only by a bound to 0; returns the sum of the others, and the largest bound."""
    lost, total = THRESHOLD, 0.0
    for f in range(padded):
        if values[bounded + f] > 0:
            lost = max(lost, values[start + f])
        if values[bounded + f] > 0 or not values[start + f] > THRESHOLD:
            values[start + f] = 0.0
        total += values[start + f]
    return total, lost


@compile_kernel(saved=False, **INNER)
def _find_posterior(entries, start, stop, stratum, tables, out, at):  # type: ignore[no-untyped-def]
    """Posterior of one row in the log domain; returns the logarithm of the sum of its products."""
    levels, log_priors, log_factors = tables.levels, tables.log_priors, tables.log_factors
    rank = log_factors.shape[1]
    for f in range(rank):
        out[at + f] = log_priors[stratum, f]
    for i in range(start, stop):
        for k in range(levels.shape[1]):
            level = levels[entries[i], k]
            if level >= 0:
                for f in range(rank):
                    out[at + f] += log_factors[level, f]
    largest = -math.inf
    for f in range(rank):
        largest = max(largest, out[at + f])
    total = 0.0
    for f in range(rank):
        out[at + f] = math.exp(out[at + f] - largest)
        total += out[at + f]
    for f in range(rank):
        out[at + f] /= total
    return largest + math.log(total)


def make_repair_row(multiply: Any, shape: Shape) -> Any:
    """Function for rows that are long, or whose products are not to be trusted.

    Parameters
    ----------
    multiply
        As in `pmflib.kernels.llvm.lanes.Lanes`.
    shape
        Shape of the table.
    """
    panel = shape[0] * shape[1]
    padded = panel * shape[2]

    @compile_kernel(*shape, saved=False, **INNER)
    def multiply_segments(  # type: ignore[no-untyped-def]
        tables, entries, start, stop, segment, prior_at, products, at, sums
    ):
        """Products of a row, rescaled after every segment; returns their sum, what may be lost, and an exponent."""
        exponent, last = 0, start
        # there is room for one row more than the batch has
        bounded = products.size - padded
        for f in range(padded):
            products[at + f] = tables.priors[prior_at + f]
            products[bounded + f] = 0.0
        while last < stop:
            if last > start:
                exponent += _rescale(products, at, bounded, padded)
            first, last = last, min(last + segment, stop)
            for column in range(0, padded, panel):
                multiply(
                    tables.rows, entries, first, last, padded, column, products, at + column,
                    products, at + column, -1.0, sums, 0,
                )  # fmt: skip
        total, lost = _drop_lost(products, at, bounded, padded)
        return total, lost, exponent

    @compile_kernel(*shape, saved=False, **INNER)
    def repair_row(entries, start, stop, stratum, tables, products, at, sums):  # type: ignore[no-untyped-def]
        """Products of one row, what is lost set to 0; returns their sum, and the logarithm of a factor taken out."""
        for segment in (LONG, SHORT):
            if stop - start > segment or segment == SHORT:
                total, lost, exponent = multiply_segments(
                    tables, entries, start, stop, segment, stratum * padded, products, at, sums
                )
                if total > MARGIN * lost:
                    return total, exponent * LOG_2
        return 1.0, _find_posterior(entries, start, stop, stratum, tables, products, at)

    return repair_row


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
