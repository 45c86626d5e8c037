"""EM row kernels: products of scaled probabilities, with exact logarithms where products would vanish.

A row is a list of table rows to multiply. A table row belongs to a level, or to a combination of levels of a few
neighbouring variables (an entry); it is scaled so that its largest probability is 1. Dense and sparse samples are
turned into the same lists, so their results agree to the bit.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from numba import njit

from pmflib.kernels.lanes import make_lanes, make_plain_lanes

OUTER = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
INNER = OUTER | {"no_cpython_wrapper": True}
"""Options of functions called from Python, and of those only called from them: what is not needed is not compiled."""

THRESHOLD = 2.0**-300
"""About 5e-91: what falls below, relative to the largest product of a segment, is known only to be below."""
MARGIN = 1e30
"""A row's products are trusted where their sum is this many times what may have been lost."""
LONG, SHORT = 64, 16
"""Table rows multiplied before products are brought back to about 1: at first, and if all of them vanish."""
SMALL = 1e-200
LARGE = 1e200
LOG_2 = math.log(2.0)


@njit(**INNER)
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


@njit(**INNER)
def _drop_bounded(values, start, bounded, padded):  # type: ignore[no-untyped-def]
    """Set products that are known only by a bound to 0; returns the largest bound."""
    lost = THRESHOLD
    for f in range(padded):
        if values[bounded + f] > 0:
            lost = max(lost, values[start + f])
            values[start + f] = 0.0
    return lost


@njit(**INNER)
def _find_posterior(entries, start, stop, levels, log_prior, log_factors, out, at):  # type: ignore[no-untyped-def]
    """Posterior of one row in the log domain; returns the logarithm of the sum of its products."""
    rank = log_prior.size
    for f in range(rank):
        out[at + f] = log_prior[f]
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


class RowKernels(NamedTuple):
    """Functions for tables of one width.

    They take samples as lists of table rows (`pmflib.kernels.em_lists`), then the model: table (n_entries * padded,),
    prior (padded,), levels, log_prior and log_factors, as `pmflib.kernels.em_tables.fill_tables` leaves them.
    """

    add_statistics: Callable[..., Any]
    """(entries, starts, stops, weights, weighted, *model, products, scales, mass, state_mass) -> log-likelihood
    under the scaled model, nats; scales is work space, (rows per batch,), products ((rows per batch + 1) * padded,)."""
    score: Callable[..., Any]
    """(entries, starts, stops, *model, log_scales, log_scale, products, log_probs, posteriors)."""


@lru_cache
def make_row_kernels(width, n_vectors, n_panels, *, plain=False):  # type: ignore[no-untyped-def]
    """Kernels for tables of ``width * n_vectors * n_panels`` columns, the last of them padding.

    Parameters
    ----------
    width, n_vectors
        As for `make_lanes`.
    n_panels
        Panels in a table row.
    plain
        Whether to do without LLVM vectors.
    """
    multiply, settle, spread = (make_plain_lanes if plain else make_lanes)(width, n_vectors)
    panel = width * n_vectors
    padded = panel * n_panels

    @njit(**INNER)
    def multiply_segments(table, entries, start, stop, prior, products, at):  # type: ignore[no-untyped-def]
        """As `multiply_row`, by segments: long ones if the row is, short ones if all products vanish."""
        segment = LONG if stop - start > LONG else SHORT
        while True:
            exponent, last = 0, start
            # there is room for one row more than the batch has
            bounded = products.size - padded
            for f in range(padded):
                products[at + f] = prior[f]
                products[bounded + f] = 0.0
            while last < stop:
                if last > start:
                    exponent += _rescale(products, at, bounded, padded)
                first, last = last, min(last + segment, stop)
                for column in range(0, padded, panel):
                    place = at + column
                    multiply(
                        table,
                        entries,
                        first,
                        last,
                        padded,
                        column,
                        products,
                        place,
                        products,
                        place,
                    )
            lost = _drop_bounded(products, at, bounded, padded)
            total = 0.0
            for column in range(0, padded, panel):
                total += settle(products, at + column, THRESHOLD)
            if segment == SHORT or total > MARGIN * lost:
                return total, lost, exponent
            segment = SHORT

    @njit(**INNER, forceinline=True)
    def multiply_row(table, entries, start, stop, prior, products, at):  # type: ignore[no-untyped-def]
        """Products of one row, what is lost set to 0; returns their sum, what may be lost, and an exponent."""
        if stop - start <= LONG:
            total = 0.0
            for column in range(0, padded, panel):
                place = at + column
                multiply(
                    table, entries, start, stop, padded, column, prior, column, products, place
                )
                total += settle(products, place, THRESHOLD)
            if total > MARGIN * THRESHOLD:
                return total, THRESHOLD, 0
        return multiply_segments(table, entries, start, stop, prior, products, at)

    @njit(**OUTER)
    def add_statistics(  # type: ignore[no-untyped-def]
        entries, starts, stops, weights, weighted, table, prior, levels, log_prior, log_factors,
        products, scales, mass, state_mass,
    ):  # fmt: skip
        log_likelihood, running = 0.0, 1.0
        for begin in range(0, starts.size, scales.size):
            n_rows = min(scales.size, starts.size - begin)
            for s in range(n_rows):
                start, stop, at = starts[begin + s], stops[begin + s], s * padded
                total, lost, exponent = multiply_row(
                    table, entries, start, stop, prior, products, at
                )
                weight = weights[begin + s] if start < stop else 0.0
                if not total > MARGIN * lost:
                    scales[s] = weight
                    log_likelihood += weight * _find_posterior(
                        entries, start, stop, levels, log_prior, log_factors, products, at
                    )
                    continue
                scales[s] = weight / total
                if exponent:
                    log_likelihood += weight * (exponent * LOG_2)
                if weighted or weight == 0:
                    log_likelihood += weight * math.log(total)
                    continue
                # one logarithm for the product of many rows
                running *= total
                if not SMALL < running < LARGE:
                    log_likelihood += math.log(running)
                    running = 1.0
            for s in range(n_rows):
                start, stop, at = starts[begin + s], stops[begin + s], s * padded
                if scales[s] != 0:
                    for column in range(0, padded, panel):
                        spread(
                            mass, entries, start, stop, padded, column, products, at + column, scales[s], state_mass
                        )  # fmt: skip
        return log_likelihood + math.log(running)

    @njit(**OUTER)
    def score(  # type: ignore[no-untyped-def]
        entries, starts, stops, table, prior, levels, log_prior, log_factors,
        log_scales, log_scale, products, log_probs, posteriors,
    ):  # fmt: skip
        for s in range(starts.size):
            start, stop = starts[s], stops[s]
            total, lost, exponent = multiply_row(table, entries, start, stop, prior, products, 0)
            if total > MARGIN * lost:
                log_prob = math.log(total) + exponent * LOG_2
            else:
                log_prob = _find_posterior(
                    entries, start, stop, levels, log_prior, log_factors, products, 0
                )
                total = 1.0
            for i in range(start, stop):
                log_prob += log_scales[entries[i]]
            log_probs[s] = log_prob + log_scale if start < stop else 0.0
            for f in range(posteriors.shape[1]):
                posteriors[s, f] = products[f] / total

    return RowKernels(add_statistics, score)
