"""Multiplying rows of a table together, and adding a row to many rows, in vector registers.

The loops over latent states are only a handful of vectors long, and numba compiles such loops to scalar code or memory
traffic. Here they are written as LLVM vectors of fixed length that stay in registers across the rows of the table. LLVM
splits the vectors to fit the machine, so the same code runs on AVX-512, AVX2, SSE2 and NEON with equal bits: nothing is
reordered or contracted.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pmflib.base.compiled.vectors import INDEX, Panel, repeat, round_down

LEAST = 2.0**-400
"""Smallest running product: two factors of at least 2**-300 then keep it above the subnormal numbers, which are
slow.
"""
ROWS = 8
"""Number of rows whose totals are processed together."""
FRACTION_BITS, BIAS = 52, 1023
FRACTION, ONE = (1 << FRACTION_BITS) - 1, BIAS << FRACTION_BITS
"""Bit patterns of float64: mask of the fraction, and the number 1.0."""
IN_FLIGHT = 4
"""Number of mass vectors loaded before the first is stored."""


class Lanes(NamedTuple):
    """Operations on panels of ``width * n_vectors`` float64; offsets count float64 values, not bytes."""

    multiply: Callable[..., Any]
    """(table, rows, start, stop, stride, column, source, source_at, target, target_at, threshold, sums, sums_at): the
    panel of the target becomes the source's times those of ``table[rows[i] * stride + column]``, start <= i < stop;
    rows are int32. Products are raised to ``LEAST`` after every second row. What is not above the threshold in the end
    becomes 0; the rest is added up into ``width`` sums."""
    add_lanes: Callable[..., Any]
    """(sums, sums_at, totals, totals_at, bound) -> int: computes 8 totals of ``width`` sums each; returns 0 if all
    exceed the bound.
    """
    divide: Callable[..., Any]
    """(scales, totals, n, fractions, exponents): of n totals, n a multiple of 8, the scales become quotients
    ``scales[s] / totals[s]``. The totals whose scale is not 0 are multiplied to the product of 8 fractions in [1, 2),
    times 2 to the sum of 8 exponents, int64: one logarithm then does for many."""
    spread: Callable[..., Any]
    """(table, rows, starts, stops, first, n_lists, stride, column, source, scales, totals): for list s < n_lists, the
    panel of ``source[s * stride + column]`` times ``scales[s]`` is added to the panels that `multiply` would read for
    ``rows[starts[first + s]:stops[first + s]]``, all different, and to ``totals[column]``."""


@lru_cache
def make_lanes(width: int, n_vectors: int) -> Lanes:
    """Make operations on panels of several vectors.

    Parameters
    ----------
    width
        Number of float64 per vector, a power of 2, at most 8.
    n_vectors
        Number of vectors per panel; more than 8 exhaust the registers.
    """
    panel = Panel(width, n_vectors)
    return Lanes(_make_multiply(panel), _make_add_lanes(panel), _make_divide(), _make_spread(panel))


def _data(context: Any, builder: Any, signature: Any, args: Any, *positions: int) -> list[Any]:
    return [
        context.make_array(signature.args[p])(context, builder, args[p]).data for p in positions
    ]


def _find_panel(builder: Any, rows: Any, i: Any, stride: Any, column: Any) -> Any:
    row = builder.sext(builder.load(builder.gep(rows, [i])), INDEX)
    return builder.add(builder.mul(row, stride), column)


def _make_multiply(panel: Panel) -> Any:
    size, real = types.intp, types.float64

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        tables, indices, sources, targets, sums = _data(
            context, builder, signature, args, 0, 1, 6, 8, 11
        )
        start, stop, stride, column = args[2:6]
        least, zero = panel.constant(LEAST), panel.constant(0.0)

        def load(i: Any) -> list[Any]:
            return panel.load(builder, tables, _find_panel(builder, indices, i, stride, column))

        def multiply(one: list[Any], other: list[Any]) -> list[Any]:
            return [builder.fmul(a, b) for a, b in zip(one, other, strict=True)]

        def multiply_by_two(i: Any, now: list[Any]) -> list[Any]:
            both = multiply(load(i), load(builder.add(i, INDEX(1))))
            return panel.raise_to(builder, multiply(now, both), least)

        even = round_down(builder, start, stop, 2)
        products = panel.load(builder, sources, args[7])
        products = repeat(builder, start, even, 2, products, multiply_by_two)
        products = repeat(builder, even, stop, 1, products, lambda i, now: multiply(now, load(i)))
        bound = panel.fill(builder, args[10])
        kept = [
            builder.select(builder.fcmp_ordered(">", value, bound), value, zero)
            for value in products
        ]
        panel.store(builder, kept, targets, args[9])
        panel.store_vector(builder, panel.add_vectors(builder, kept), sums, args[12])
        return context.get_dummy_value()

    @intrinsic
    def multiply(  # type: ignore[no-untyped-def]
        _, table, rows, start, stop, stride, column, source, source_at, target, target_at, threshold, sums, sums_at
    ):  # fmt: skip
        signature = types.void(
            table, rows, size, size, size, size, source, size, target, size, real, sums, size
        )
        return signature, generate

    return multiply


def _make_add_lanes(panel: Panel) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sums, totals = _data(context, builder, signature, args, 0, 2)
        rows = [
            panel.load_vector(builder, sums, builder.add(args[1], INDEX(row * panel.width)))
            for row in range(ROWS)
        ]
        bound, doubtful = panel.fill(builder, args[4]), None
        for k, values in enumerate(panel.add_lanes(builder, rows)):
            position = builder.add(args[3], INDEX(k * panel.width))
            panel.store_vector(builder, values, totals, position)
            below = builder.fcmp_unordered("<=", values, bound)
            doubtful = below if doubtful is None else builder.or_(doubtful, below)
        return builder.zext(builder.bitcast(doubtful, ir.IntType(panel.width)), INDEX)

    @intrinsic
    def add_lanes(_, sums, sums_at, totals, totals_at, bound):  # type: ignore[no-untyped-def]
        return types.int64(sums, types.intp, totals, types.intp, types.float64), generate

    return add_lanes


@lru_cache
def _make_divide() -> Any:
    eight = Panel(ROWS, 1)
    integers = ir.VectorType(INDEX, ROWS)

    def of(value: int) -> Any:
        return ir.Constant(integers, [value] * ROWS)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        scales, totals, fractions, exponents = _data(context, builder, signature, args, 0, 1, 3, 4)
        one, zero = eight.constant(1.0), eight.constant(0.0)
        powers = builder.bitcast(exponents, fractions.type)

        def divide(s: Any, now: list[Any]) -> list[Any]:
            scale = eight.load_vector(builder, scales, s)
            total = eight.load_vector(builder, totals, s)
            total = builder.select(builder.fcmp_ordered(">", scale, zero), total, one)
            eight.store_vector(builder, builder.fdiv(scale, total), scales, s)
            bits = builder.bitcast(builder.fmul(now[0], total), integers)
            power = builder.sub(builder.lshr(bits, of(FRACTION_BITS)), of(BIAS))
            bits = builder.or_(builder.and_(bits, of(FRACTION)), of(ONE))
            return [builder.bitcast(bits, eight.vector), builder.add(now[1], power)]

        first = INDEX(0)
        loaded = builder.bitcast(eight.load_vector(builder, powers, first), integers)
        now = [eight.load_vector(builder, fractions, first), loaded]
        now = repeat(builder, first, args[2], ROWS, now, divide)
        eight.store_vector(builder, now[0], fractions, first)
        eight.store_vector(builder, builder.bitcast(now[1], eight.vector), powers, first)
        return context.get_dummy_value()

    @intrinsic
    def divide(_, scales, totals, n, fractions, exponents):  # type: ignore[no-untyped-def]
        return types.void(scales, totals, types.intp, fractions, exponents), generate

    return divide


def _make_spread(panel: Panel) -> Any:
    size = types.intp
    # several rows are loaded before the first is stored: they are distinct, which the compiler cannot know
    n_rows = 1 << (max(1, IN_FLIGHT // panel.n_vectors).bit_length() - 1)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        tables, indices, starts, stops, sources, scales, totals = _data(
            context, builder, signature, args, 0, 1, 2, 3, 8, 9, 10
        )
        first, n_lists, stride, column = args[4:8]

        def add(one: list[Any], other: list[Any]) -> list[Any]:
            return [builder.fadd(a, b) for a, b in zip(one, other, strict=True)]

        def add_to_rows(i: Any, n: int, added: list[Any]) -> None:
            positions = [
                _find_panel(builder, indices, builder.add(i, INDEX(k)), stride, column)
                for k in range(n)
            ]
            loaded = [add(panel.load(builder, tables, position), added) for position in positions]
            for values, position in zip(loaded, positions, strict=True):
                panel.store(builder, values, tables, position)

        def add_list(s: Any, now: list[Any]) -> list[Any]:
            position = builder.add(builder.mul(s, stride), column)
            scale = panel.fill(builder, builder.load(builder.gep(scales, [s])))
            added = [builder.fmul(v, scale) for v in panel.load(builder, sources, position)]
            row = builder.add(first, s)
            at, stop = (builder.load(builder.gep(ends, [row])) for ends in (starts, stops))
            n = n_rows
            while n:
                last = round_down(builder, at, stop, n)

                def body(i: Any, none: list[Any], n: int = n) -> list[Any]:
                    add_to_rows(i, n, added)
                    return none

                repeat(builder, at, last, n, [], body)
                at, n = last, n // 2
            return add(now, added)

        sums = panel.load(builder, totals, column)
        sums = repeat(builder, INDEX(0), n_lists, 1, sums, add_list)
        panel.store(builder, sums, totals, column)
        return context.get_dummy_value()

    @intrinsic
    def spread(  # type: ignore[no-untyped-def]
        _, table, rows, starts, stops, first, n_lists, stride, column, source, scales, totals
    ):
        signature = types.void(
            table, rows, starts, stops, size, size, size, size, source, scales, totals
        )
        return signature, generate

    return spread
