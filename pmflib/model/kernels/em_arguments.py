"""Arguments of the EM row kernels (samples, scaled tables, work space), and the repair of rows with lost precision."""

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from pmflib.base.arrays import FloatArray, IntArray, StrataArray
from pmflib.base.compiled.saved_code import compile_kernel

Shape: TypeAlias = tuple[int, int, int, int]
"""Vector width, vectors per panel, panels per table row, and whether plain loops replace LLVM vectors."""
ALIKE = np.empty(0, np.int32)
"""Value of `Lists.strata` if all rows have the same prior."""


class Lists(NamedTuple):
    """Samples as lists of table rows (`pmflib.model.kernels.em_rows`): row s owns ``entries[starts[s]:stops[s]]``."""

    entries: npt.NDArray[np.int32]
    """int32 of shape (n_listed,), entry numbers."""
    starts: IntArray
    """int64 of shape (n_rows,)."""
    stops: IntArray
    """int64 of shape (n_rows,)."""
    strata: StrataArray
    """int32 of shape (n_rows,): index of each row's prior; or `ALIKE`."""


class Tables(NamedTuple):
    """A model, scaled and arranged by entry, as filled by `pmflib.model.kernels.em_arguments.fill_tables`."""

    rows: FloatArray
    """float64 of shape (n_entries * padded,): the table, row after row."""
    priors: FloatArray
    """float64 of shape (n_strata * padded,)."""
    levels: npt.NDArray[np.int32]
    """int32 of shape (n_entries, group): levels that an entry combines, padded with -1."""
    log_priors: FloatArray
    """float64 of shape (n_strata, rank): scaled, nats."""
    log_factors: FloatArray
    """float64 of shape (n_levels, rank): scaled, nats."""


class Work(NamedTuple):
    """Work space for a batch of rows, all float64; n_batch is a multiple of 8."""

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
    """Posterior masses, and the log-likelihood as eight pending products, stored as fractions and binary exponents."""

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
"""Compiler options of functions called from Python, and of functions called only from those: unneeded wrappers are not
compiled.
"""
PART = INNER | {"inline": "always"}
"""Options of a function that exists only for readability: numba compiles it into its single caller, which takes less
time than compiling both.
"""
UNCOUNTED = OUTER | {"_nrt": False}
"""Options of functions that allocate nothing and call nothing that allocates. Numba then omits reference counting of
their arguments, whose locked instructions would otherwise, in every batch, wait for all pending writes of the core.
"""

THRESHOLD = 2.0**-300
"""About 5e-91: products below this, relative to the largest product of a segment, are known only by this bound."""
MARGIN = 1e30
"""Products of a row are trusted if their sum exceeds the possible loss by this factor."""
LONG, SHORT = 64, 16
"""Number of table rows multiplied before products are rescaled to about 1: normally, and after all of them vanish."""
LOG_2 = math.log(2.0)


@compile_kernel(saved=False, **INNER)
def _rescale(values, start, bounded, padded):  # type: ignore[no-untyped-def]
    """Scale products so that the largest is in [0.5, 1); returns the binary exponent removed.

    A product at or below the threshold is replaced by an upper bound, marked by a 1 from ``values[bounded]`` on, and
    remains a bound from then on.
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
    """Set products known only by a bound to 0; returns the sum of the others and the largest bound."""
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
    """Compute the posterior of one row in the log domain; returns the logarithm of the sum of its products."""
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
    """Make the function that handles long rows and rows whose products are not to be trusted.

    Parameters
    ----------
    multiply
        As in `pmflib.base.compiled.lanes.Lanes`.
    shape
        Shape of the table.
    """
    panel = shape[0] * shape[1]
    padded = panel * shape[2]

    @compile_kernel(*shape, saved=False, **INNER)
    def multiply_segments(  # type: ignore[no-untyped-def]
        tables, entries, start, stop, segment, prior_at, products, at, sums
    ):
        """Compute products of a row, rescaled by segment; returns their sum, the possible loss, and an exponent."""
        exponent, last = 0, start
        # there is room for one row beyond the batch
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
        """Compute products of one row, with lost ones set to 0; returns their sum and the log of the factor removed."""
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
    """Multiply scaled probabilities for each entry.

    factors: float64 (n_levels, rank), scaled so that each row's maximum is 1. log_maxima: (n_levels,), logarithms of
    the factors removed, nats. levels: int32 (n_entries, group), levels that an entry combines, padded with -1. Filled
    are table (n_entries, padded), at least ``least``, with the padding unchanged, and log_scales (n_entries,):
    logarithm of the factor removed from each entry, nats.
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
