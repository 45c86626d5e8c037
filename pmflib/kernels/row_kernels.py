"""EM row kernels: products of scaled probabilities, with exact logarithms where products would vanish.

A row is a list of table rows to multiply. A table row belongs to a level, or to a combination of levels of a few
neighbouring variables (an entry); it is scaled so that its largest probability is 1. Dense and sparse samples are
turned into the same lists, so their results agree to the bit.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from pmflib.kernels.em_segments import (
    INNER,
    LONG,
    MARGIN,
    OUTER,
    THRESHOLD,
    UNCOUNTED,
    Shape,
    make_mend_row,
)
from pmflib.kernels.llvm.lanes import ROWS, Lanes, make_lanes
from pmflib.kernels.llvm.plain_lanes import make_plain_lanes
from pmflib.kernels.llvm.saved_code import compile_kernel

ALIKE = np.empty(0, np.int32)
"""Strata of rows that all have the same prior."""


class RowKernels(NamedTuple):
    """Functions for tables of one width.

    They take samples as lists of table rows (`pmflib.kernels.em_lists`), and strata: which prior each has, int32
    (n_rows,), or `ALIKE`. Then the model: table (n_entries * padded,), priors (n_strata * padded,), levels, log_priors
    and log_factors, as `pmflib.kernels.em_tables.fill_tables` leaves them; then work space: products ((n_batch + 1) *
    padded,), sums (n_batch * n_panels * width,), totals (n_batch * n_panels,), logs and scales (n_batch,), all float64,
    n_batch a multiple of 8.
    """

    add_statistics: Callable[..., Any]
    """(entries, starts, stops, strata, weights, weighted, *model, *work, mass, state_mass, fractions, exponents) ->
    log-likelihood under the scaled model, nats; without weighted, weights are not looked at, and most of the result is
    left in fractions and exponents, as `pmflib.kernels.llvm.lanes.Lanes.divide` does."""
    score: Callable[..., Any]
    """(entries, starts, stops, strata, *model, *work, log_scales, log_scale, log_probs, posteriors)."""


@lru_cache
def make_row_kernels(
    width: int, n_vectors: int, n_panels: int, *, plain: bool = False
) -> RowKernels:
    """Kernels for tables of ``width * n_vectors * n_panels`` columns, the last of them padding.

    Parameters
    ----------
    width, n_vectors
        As for `pmflib.kernels.llvm.lanes.make_lanes`.
    n_panels
        Panels in a table row.
    plain
        Whether to do without LLVM vectors.
    """
    lanes = (make_plain_lanes if plain else make_lanes)(width, n_vectors)
    shape = (width, n_vectors, n_panels, int(plain))
    multiply_batch = _make_multiply_batch(lanes, shape)
    return RowKernels(
        _make_add_statistics(multiply_batch, lanes, shape),
        _make_score(multiply_batch, shape),
    )


def _make_multiply_batch(lanes: Lanes, shape: Shape) -> Any:
    """Products of a batch of rows, and their sums."""
    width, n_vectors, n_panels, _ = shape
    panel = width * n_vectors
    padded = panel * n_panels
    multiply, add_lanes = lanes.multiply, lanes.add_lanes
    mend_row = make_mend_row(multiply, shape)

    @compile_kernel(*shape, saved=False, **INNER, forceinline=True)
    def multiply_batch(  # type: ignore[no-untyped-def]
        entries, starts, stops, strata, begin, n_rows, table, priors, levels, log_priors, log_factors,
        products, sums, totals, logs, scales,
    ):  # fmt: skip
        """Fill products, totals and scales of rows ``begin + s``: a scale is 0 for a row with nothing observed, or 1.

        Where it returns True, totals lack a factor exp(logs).
        """
        n_batch = logs.size
        for s in range(n_rows):
            start, stop, at = starts[begin + s], stops[begin + s], s * padded
            prior_at = strata[begin + s] * padded if strata.size else 0
            scales[s] = start < stop
            for p in range(n_panels):
                if stop - start > LONG:
                    # left to be mended, as its total is 0
                    for k in range(width):
                        sums[(p * n_batch + s) * width + k] = 0.0
                    continue
                multiply(
                    table, entries, start, stop, padded, p * panel, priors, prior_at + p * panel,
                    products, at + p * panel, THRESHOLD, sums, (p * n_batch + s) * width,
                )  # fmt: skip
        doubtful = 0
        for s in range(0, n_batch * n_panels, ROWS):
            doubtful |= add_lanes(sums, s * width, totals, s, MARGIN * THRESHOLD)
        for p in range(1, n_panels):
            for s in range(n_rows):
                totals[s] += totals[p * n_batch + s]
        if not doubtful:
            return False
        for s in range(n_rows):
            logs[s] = 0.0
            if not totals[s] > MARGIN * THRESHOLD:
                stratum = strata[begin + s] if strata.size else 0
                totals[s], logs[s] = mend_row(
                    entries, starts[begin + s], stops[begin + s], stratum, table, priors, levels,
                    log_priors, log_factors, products, s * padded, sums,
                )  # fmt: skip
        return True

    return multiply_batch


def _make_add_statistics(multiply_batch: Any, lanes: Lanes, shape: Shape) -> Any:
    width, n_vectors, n_panels, plain = shape
    panel = width * n_vectors
    padded = panel * n_panels
    divide, spread = lanes.divide, lanes.spread

    @compile_kernel(*shape, **(OUTER if plain else UNCOUNTED))
    def add_statistics(  # type: ignore[no-untyped-def]
        entries, starts, stops, strata, weights, weighted, table, priors, levels, log_priors,
        log_factors, products, sums, totals, logs, scales, mass, state_mass, fractions, exponents,
    ):  # fmt: skip
        log_likelihood = 0.0
        for begin in range(0, starts.size, scales.size):
            n_rows = min(scales.size, starts.size - begin)
            mended = multiply_batch(
                entries, starts, stops, strata, begin, n_rows, table, priors, levels, log_priors,
                log_factors, products, sums, totals, logs, scales,
            )  # fmt: skip
            if weighted:
                for s in range(n_rows):
                    scales[s] *= weights[begin + s]
                    log_likelihood += scales[s] * math.log(totals[s])
            if mended:
                for s in range(n_rows):
                    log_likelihood += scales[s] * logs[s]
            for s in range(n_rows, scales.size):
                scales[s] = 0.0
            divide(scales, totals, scales.size, fractions, exponents)
            for p in range(n_panels):
                spread(
                    mass, entries, starts, stops, begin, n_rows, padded, p * panel,
                    products, scales, state_mass,
                )  # fmt: skip
        return log_likelihood

    return add_statistics


def _make_score(multiply_batch: Any, shape: Shape) -> Any:
    padded = shape[0] * shape[1] * shape[2]

    @compile_kernel(*shape, **(OUTER if shape[3] else UNCOUNTED))
    def score(  # type: ignore[no-untyped-def]
        entries, starts, stops, strata, table, priors, levels, log_priors, log_factors,
        products, sums, totals, logs, scales, log_scales, log_scale, log_probs, posteriors,
    ):  # fmt: skip
        for begin in range(0, starts.size, scales.size):
            n_rows = min(scales.size, starts.size - begin)
            mended = multiply_batch(
                entries, starts, stops, strata, begin, n_rows, table, priors, levels, log_priors,
                log_factors, products, sums, totals, logs, scales,
            )  # fmt: skip
            for s in range(n_rows):
                start, stop = starts[begin + s], stops[begin + s]
                log_prob = math.log(totals[s]) + (logs[s] if mended else 0.0)
                for i in range(start, stop):
                    log_prob += log_scales[entries[i]]
                log_probs[begin + s] = log_prob + log_scale if start < stop else 0.0
                for f in range(posteriors.shape[1]):
                    posteriors[begin + s, f] = products[s * padded + f] / totals[s]

    return score
