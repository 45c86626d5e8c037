"""The operations of `pmflib.base.compiled.lanes` as plain loops: slower, with equal bits.

The inner loops run over states, so that LLVM vectorises them; intermediate values pass through memory for every table
row. Nothing is allocated: an allocation costs as much as ten rows.
"""

import math
from functools import lru_cache

import numpy as np

from pmflib.base.compiled.lanes import LEAST, ROWS, Lanes
from pmflib.base.compiled.saved_code import compile_kernel


@lru_cache
def make_plain_lanes(width: int, n_vectors: int) -> Lanes:
    """Make the operations of `pmflib.base.compiled.lanes.make_lanes` without LLVM vectors."""
    # positions are unsigned: otherwise numba handles negative ones and does not vectorise the loops
    states = np.uint64(width * n_vectors)

    # zeros in place of absent vectors and lanes leave the bits of a sum of non-negative numbers unchanged
    @compile_kernel(width, n_vectors, saved=False)
    def vector(values, at, v):  # type: ignore[no-untyped-def]
        return values[at + v * width] if v < n_vectors else 0.0

    @compile_kernel(width, n_vectors, saved=False)
    def lane(values, at, k):  # type: ignore[no-untyped-def]
        return values[at + k] if k < width else 0.0

    @compile_kernel(width, n_vectors, saved=False)
    def add_vectors(x, at):  # type: ignore[no-untyped-def]
        low = (vector(x, at, 0) + vector(x, at, 1)) + (vector(x, at, 2) + vector(x, at, 3))
        high = (vector(x, at, 4) + vector(x, at, 5)) + (vector(x, at, 6) + vector(x, at, 7))
        return low + high

    @compile_kernel(width, n_vectors, saved=False)
    def multiply(  # type: ignore[no-untyped-def]
        table, rows, start, stop, stride, column, source, source_at, target, target_at, threshold, sums, sums_at
    ):  # fmt: skip
        even = start + (stop - start) // 2 * 2
        first, step, offset = np.uint64(target_at), np.uint64(stride), np.uint64(column)
        for f in range(states):
            target[first + f] = source[np.uint64(source_at) + f]
        for i in range(start, even, 2):
            one, other = np.uint64(rows[i]) * step + offset, np.uint64(rows[i + 1]) * step + offset
            for f in range(states):
                product = target[first + f] * (table[one + f] * table[other + f])
                target[first + f] = product if product > LEAST else LEAST
        if even < stop:
            one = np.uint64(rows[even]) * step + offset
            for f in range(states):
                target[first + f] *= table[one + f]
        for f in range(states):
            product = target[first + f]
            target[first + f] = product if product > threshold else 0.0
        for k in range(width):
            sums[sums_at + k] = add_vectors(target, target_at + k)

    @compile_kernel(width, n_vectors, saved=False)
    def add_lanes(sums, sums_at, totals, totals_at, bound):  # type: ignore[no-untyped-def]
        n_doubtful = 0
        for row in range(ROWS):
            at = sums_at + row * width
            even = (lane(sums, at, 0) + lane(sums, at, 4)) + (lane(sums, at, 2) + lane(sums, at, 6))
            odd = (lane(sums, at, 1) + lane(sums, at, 5)) + (lane(sums, at, 3) + lane(sums, at, 7))
            total = even + odd
            totals[totals_at + row] = total
            n_doubtful += not total > bound
        return n_doubtful

    @compile_kernel(width, n_vectors, saved=False)
    def divide(scales, totals, n, fractions, exponents):  # type: ignore[no-untyped-def]
        for s in range(n):
            k, total = s % ROWS, totals[s] if scales[s] > 0 else 1.0
            scales[s] /= total
            # in [0.5, 1), with its exponent
            fraction, exponent = math.frexp(fractions[k] * total)
            fractions[k] = 2 * fraction
            exponents[k] += exponent - 1

    @compile_kernel(width, n_vectors, saved=False)
    def spread(table, rows, starts, stops, first, n_lists, stride, column, source, scales, totals):  # type: ignore[no-untyped-def]
        step, offset = np.uint64(stride), np.uint64(column)
        for s in range(n_lists):
            line, scale = np.uint64(s) * step + offset, scales[s]
            for f in range(states):
                totals[offset + f] += source[line + f] * scale
            for i in range(starts[first + s], stops[first + s]):
                at = np.uint64(rows[i]) * step + offset
                for f in range(states):
                    table[at + f] += source[line + f] * scale

    return Lanes(multiply, add_lanes, divide, spread)
