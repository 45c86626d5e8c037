"""EM row kernels: products of scaled probabilities, with exact logarithms where products would vanish.

A row is a list of table rows to multiply. A table row belongs to a level, or to a combination of levels of a few
neighbouring variables (an entry); it is scaled so that its largest probability is 1. Dense and sparse samples become
the same lists, so their results agree to the bit.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from pmflib.kernels.em_arguments import Shape
from pmflib.kernels.em_segments import (
    INNER,
    LONG,
    MARGIN,
    THRESHOLD,
    UNCOUNTED,
    make_repair_row,
)
from pmflib.kernels.llvm.lanes import ROWS, Lanes, make_lanes
from pmflib.kernels.llvm.plain_lanes import make_plain_lanes
from pmflib.kernels.llvm.saved_code import compile_kernel


class RowKernels(NamedTuple):
    """Functions for tables of one width."""

    add_statistics: Callable[..., Any]
    """(lists, weights, weighted, tables, work, masses) -> log-likelihood under the scaled model, nats. lists: `Lists`.
    weights: float64 (n_rows,), read only if weighted, a bool. tables: `Tables`. work: `Work`. masses: `Masses`, grow.
    Without weights, most of the log-likelihood is left in the fractions and exponents of the masses, as
    `pmflib.kernels.llvm.lanes.Lanes.divide` does."""
    score: Callable[..., Any]
    """(lists, tables, work, log_scales, log_scale, log_probs, posteriors). log_scales: float64 (n_entries,), what was
    taken out of each entry, nats, and log_scale, a float, out of the priors. Filled are log_probs, float64 (n_rows,),
    and posteriors, (n_rows, rank), or (n_rows, 0) for none."""


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
    repair_row = make_repair_row(multiply, shape)

    @compile_kernel(*shape, saved=False, **INNER, forceinline=True)
    def multiply_batch(lists, begin, n_rows, tables, work):  # type: ignore[no-untyped-def]
        """Fill products, totals and scales of rows ``begin + s``: a scale is 0 for a row with nothing observed, or 1.

        Where it returns True, totals lack a factor exp(logs).
        """
        entries, starts, stops, strata = lists
        products, sums, totals, logs, scales = work
        n_batch = logs.size
        for s in range(n_rows):
            start, stop, at = starts[begin + s], stops[begin + s], s * padded
            prior_at = strata[begin + s] * padded if strata.size else 0
            scales[s] = start < stop
            for p in range(n_panels):
                if stop - start > LONG:
                    # left to be repaired, as its total is 0
                    for k in range(width):
                        sums[(p * n_batch + s) * width + k] = 0.0
                    continue
                multiply(
                    tables.rows, entries, start, stop, padded, p * panel,
                    tables.priors, prior_at + p * panel, products, at + p * panel, THRESHOLD,
                    sums, (p * n_batch + s) * width,
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
                start, stop = starts[begin + s], stops[begin + s]
                totals[s], logs[s] = repair_row(
                    entries, start, stop, stratum, tables, products, s * padded, sums
                )
        return True

    return multiply_batch


def _make_add_statistics(multiply_batch: Any, lanes: Lanes, shape: Shape) -> Any:
    width, n_vectors, n_panels, _ = shape
    panel = width * n_vectors
    padded = panel * n_panels
    divide, spread = lanes.divide, lanes.spread

    @compile_kernel(*shape, **UNCOUNTED)
    def add_statistics(lists, weights, weighted, tables, work, masses):  # type: ignore[no-untyped-def]
        starts, totals, logs, scales = lists.starts, work.totals, work.logs, work.scales
        log_likelihood = 0.0
        for begin in range(0, starts.size, scales.size):
            n_rows = min(scales.size, starts.size - begin)
            repaired = multiply_batch(lists, begin, n_rows, tables, work)
            if weighted:
                for s in range(n_rows):
                    scales[s] *= weights[begin + s]
                    log_likelihood += scales[s] * math.log(totals[s])
            if repaired:
                for s in range(n_rows):
                    log_likelihood += scales[s] * logs[s]
            for s in range(n_rows, scales.size):
                scales[s] = 0.0
            divide(scales, totals, scales.size, masses.fractions, masses.exponents)
            for p in range(n_panels):
                spread(
                    masses.by_entry, lists.entries, starts, lists.stops, begin, n_rows,
                    padded, p * panel, work.products, scales, masses.by_state,
                )  # fmt: skip
        return log_likelihood

    return add_statistics


def _make_score(multiply_batch: Any, shape: Shape) -> Any:
    padded = shape[0] * shape[1] * shape[2]

    @compile_kernel(*shape, **UNCOUNTED)
    def score(lists, tables, work, log_scales, log_scale, log_probs, posteriors):  # type: ignore[no-untyped-def]
        entries, starts, stops, _ = lists
        products, _, totals, logs, scales = work
        for begin in range(0, starts.size, scales.size):
            n_rows = min(scales.size, starts.size - begin)
            repaired = multiply_batch(lists, begin, n_rows, tables, work)
            for s in range(n_rows):
                start, stop = starts[begin + s], stops[begin + s]
                log_prob = math.log(totals[s]) + (logs[s] if repaired else 0.0)
                for i in range(start, stop):
                    log_prob += log_scales[entries[i]]
                log_probs[begin + s] = log_prob + log_scale if start < stop else 0.0
                for f in range(posteriors.shape[1]):
                    posteriors[begin + s, f] = products[s * padded + f] / totals[s]

    return score
