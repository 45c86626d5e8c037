"""Rows whose plain product may have lost something: products by segments, or in the log domain."""

import math
from typing import Any

from pmflib.kernels.em_arguments import Shape
from pmflib.kernels.llvm.saved_code import compile_kernel

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
