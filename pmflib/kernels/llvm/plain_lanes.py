"""The operations of `pmflib.kernels.llvm.lanes` in plain loops: slower, to the same bits."""

import math
from functools import lru_cache

from pmflib.kernels.llvm.lanes import LEAST, ROWS, Lanes
from pmflib.kernels.llvm.saved_code import compile_kernel


@lru_cache
def make_plain_lanes(width: int, n_vectors: int) -> Lanes:
    """As `pmflib.kernels.llvm.lanes.make_lanes`, without LLVM vectors."""
    panel = width * n_vectors

    @compile_kernel(width, n_vectors, saved=False)
    def multiply(  # type: ignore[no-untyped-def]
        table, rows, start, stop, stride, column, source, source_at, target, target_at, threshold, sums, sums_at
    ):  # fmt: skip
        even = start + (stop - start) // 2 * 2
        for f in range(panel):
            product, at = source[source_at + f], column + f
            for i in range(start, even, 2):
                product *= table[rows[i] * stride + at] * table[rows[i + 1] * stride + at]
                if not product > LEAST:
                    product = LEAST
            if even < stop:
                product *= table[rows[even] * stride + at]
            target[target_at + f] = product if product > threshold else 0.0
        parts = target[target_at : target_at + panel].copy().reshape(n_vectors, width)
        n = n_vectors
        while n > 1:
            # neighbours in pairs, one left over at the end
            for v in range(n // 2):
                parts[v] = parts[2 * v] + parts[2 * v + 1]
            if n % 2:
                parts[n // 2] = parts[n - 1]
            n = n // 2 + n % 2
        sums[sums_at : sums_at + width] = parts[0]

    @compile_kernel(width, n_vectors, saved=False)
    def add_lanes(sums, sums_at, totals, totals_at, bound):  # type: ignore[no-untyped-def]
        n_doubtful = 0
        for row in range(ROWS):
            lanes = sums[sums_at + row * width : sums_at + (row + 1) * width].copy()
            n = width
            while n > 1:
                n //= 2
                for k in range(n):
                    lanes[k] += lanes[k + n]
            totals[totals_at + row] = lanes[0]
            n_doubtful += not lanes[0] > bound
        return n_doubtful

    @compile_kernel(width, n_vectors, saved=False)
    def divide(scales, totals, n, fractions, exponents):  # type: ignore[no-untyped-def]
        for s in range(n):
            k, total = s % ROWS, totals[s] if scales[s] > 0 else 1.0
            scales[s] /= total
            # in [0.5, 1), and the exponent that goes with it
            fraction, exponent = math.frexp(fractions[k] * total)
            fractions[k] = 2 * fraction
            exponents[k] += exponent - 1

    @compile_kernel(width, n_vectors, saved=False)
    def spread(table, rows, starts, stops, first, n_lists, stride, column, source, scales, totals):  # type: ignore[no-untyped-def]
        for s in range(n_lists):
            for f in range(column, column + panel):
                added = source[s * stride + f] * scales[s]
                for i in range(starts[first + s], stops[first + s]):
                    table[rows[i] * stride + f] += added
                totals[f] += added

    return Lanes(multiply, add_lanes, divide, spread)
