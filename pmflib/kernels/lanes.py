"""Rows of a table multiplied together, and a row added to many, in vector registers.

The loops over latent states are a handful of vectors long, and numba's compiler turns loops of that kind into scalar
code or into memory traffic. Here they are written as LLVM vectors of fixed length that stay in registers across the
rows of the table. LLVM splits the vectors as the machine needs, so the same code runs with AVX-512, AVX2, SSE2 and
NEON, to the same bits: nothing is reordered or contracted.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_INDEX = ir.IntType(64)
_DOUBLE = ir.DoubleType()


LEAST = 2.0**-400
"""Least running product: two factors of at least 2**-300 leave it above the subnormal numbers, which are slow."""


class Lanes(NamedTuple):
    """Operations on panels of ``width * n_vectors`` float64; offsets count float64, not bytes."""

    multiply: Callable[..., Any]
    """(table, rows, start, stop, stride, column, source, source_at, target, target_at): the panel of the target
    becomes the source's times those of ``table[rows[i] * stride + column]``, start <= i < stop; rows are int32.
    Products are raised to ``LEAST`` after every second row."""
    settle: Callable[..., Any]
    """(values, at, threshold) -> float: what is not above the threshold becomes 0; returns the sum of the rest."""
    spread: Callable[..., Any]
    """(table, rows, start, stop, stride, column, source, source_at, scale, total): the source's panel times the
    scale is added to the panels that `multiply` would read, and to ``total[column]``."""


@lru_cache
def make_lanes(width: int, n_vectors: int) -> Lanes:
    """Operations on panels of some vectors.

    Parameters
    ----------
    width
        float64 per vector, a power of 2.
    n_vectors
        Vectors per panel; at most 8, or registers run out.
    """
    vector = ir.VectorType(_DOUBLE, width)
    panel = range(n_vectors)

    def at(builder: Any, pointer: Any, offset: Any, v: int) -> Any:
        place = builder.add(offset, ir.Constant(_INDEX, v * width))
        return builder.bitcast(builder.gep(pointer, [place]), vector.as_pointer())

    def load(builder: Any, pointer: Any, offset: Any) -> list[Any]:
        return [builder.load(at(builder, pointer, offset, v), align=8) for v in panel]

    def store(builder: Any, values: list[Any], pointer: Any, offset: Any) -> None:
        for v in panel:
            builder.store(values[v], at(builder, pointer, offset, v), align=8)

    def fill(builder: Any, scalar: Any) -> Any:
        none = ir.Constant(vector, ir.Undefined)
        one = builder.insert_element(none, scalar, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
        return builder.shuffle_vector(one, none, zeros)

    def find_panel(builder: Any, rows: Any, i: Any, stride: Any, column: Any) -> Any:
        row = builder.sext(builder.load(builder.gep(rows, [i])), _INDEX)
        return builder.add(builder.mul(row, stride), column)

    def repeat(
        builder: Any,
        start: Any,
        stop: Any,
        step: int,
        carried: list[Any],
        body: Callable[..., list[Any]],
    ) -> list[Any]:
        """Loop from start to below stop with values carried in registers."""
        before = builder.block
        loop, end = builder.append_basic_block("loop"), builder.append_basic_block("end")
        builder.cbranch(builder.icmp_signed("<", start, stop), loop, end)
        builder.position_at_end(loop)
        i = builder.phi(_INDEX)
        now = [builder.phi(vector) for _ in carried]
        new = body(i, now)
        following = builder.add(i, ir.Constant(_INDEX, step))
        i.add_incoming(start, before)
        i.add_incoming(following, builder.block)
        for phi, first, last in zip(now, carried, new, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(last, builder.block)
        builder.cbranch(builder.icmp_signed("<", following, stop), loop, end)
        builder.position_at_end(end)
        out = [builder.phi(vector) for _ in carried]
        for phi, first, last in zip(out, carried, new, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(last, loop)
        return out

    def data(context: Any, builder: Any, signature: Any, args: Any, *places: int) -> list[Any]:
        return [
            context.make_array(signature.args[p])(context, builder, args[p]).data for p in places
        ]

    @intrinsic
    def multiply(_, table, rows, start, stop, stride, column, source, source_at, target, target_at):  # type: ignore[no-untyped-def]
        size = types.intp
        signature = types.void(table, rows, size, size, size, size, source, size, target, size)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            tables, indices, sources, targets = data(context, builder, signature, args, 0, 1, 6, 8)

            least = ir.Constant(vector, [LEAST] * width)

            def multiply_by(i: Any, now: list[Any]) -> list[Any]:
                place = find_panel(builder, indices, i, args[4], args[5])
                factors = load(builder, tables, place)
                return [builder.fmul(a, b) for a, b in zip(now, factors, strict=True)]

            def multiply_by_two(i: Any, now: list[Any]) -> list[Any]:
                now = multiply_by(builder.add(i, ir.Constant(_INDEX, 1)), multiply_by(i, now))
                above = [builder.fcmp_ordered(">", value, least) for value in now]
                return [builder.select(a, b, least) for a, b in zip(above, now, strict=True)]

            n_even = builder.and_(builder.sub(args[3], args[2]), ir.Constant(_INDEX, -2))
            even = builder.add(args[2], n_even)
            products = load(builder, sources, args[7])
            products = repeat(builder, args[2], even, 2, products, multiply_by_two)
            products = repeat(builder, even, args[3], 1, products, multiply_by)
            store(builder, products, targets, args[9])
            return context.get_dummy_value()

        return signature, generate

    @intrinsic
    def settle(_, values, offset, threshold):  # type: ignore[no-untyped-def]
        signature = types.float64(values, types.intp, types.float64)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            (pointer,) = data(context, builder, signature, args, 0)
            least, zero = fill(builder, args[2]), ir.Constant(vector, [0.0] * width)
            kept = [
                builder.select(builder.fcmp_ordered(">", value, least), value, zero)
                for value in load(builder, pointer, args[1])
            ]
            store(builder, kept, pointer, args[1])
            while len(kept) > 1:
                pairs = [builder.fadd(a, b) for a, b in zip(kept[::2], kept[1::2], strict=False)]
                kept = pairs + kept[len(pairs) * 2 :]
            total, n = kept[0], width
            while n > 1:
                # the upper half onto the lower
                n //= 2
                mask = ir.Constant(
                    ir.VectorType(ir.IntType(32), width),
                    [(k + n) % width for k in range(width)],
                )
                total = builder.fadd(total, builder.shuffle_vector(total, total, mask))
            return builder.extract_element(total, ir.Constant(ir.IntType(32), 0))

        return signature, generate

    @intrinsic
    def spread(_, table, rows, start, stop, stride, column, source, source_at, scale, total):  # type: ignore[no-untyped-def]
        size = types.intp
        signature = types.void(
            table, rows, size, size, size, size, source, size, types.float64, total
        )

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            tables, indices, sources, totals = data(context, builder, signature, args, 0, 1, 6, 9)
            factor = fill(builder, args[8])
            added = [builder.fmul(v, factor) for v in load(builder, sources, args[7])]

            def add_to(pointer: Any, place: Any) -> None:
                held = load(builder, pointer, place)
                store(
                    builder,
                    [builder.fadd(a, b) for a, b in zip(held, added, strict=True)],
                    pointer,
                    place,
                )

            def body(i: Any, now: list[Any]) -> list[Any]:
                add_to(tables, find_panel(builder, indices, i, args[4], args[5]))
                return []

            repeat(builder, args[2], args[3], 1, [], body)
            add_to(totals, args[5])
            return context.get_dummy_value()

        return signature, generate

    return Lanes(multiply, settle, spread)


@lru_cache
def make_plain_lanes(width: int, n_vectors: int) -> Lanes:
    """Do as `make_lanes` in plain loops: slower, to the same bits."""
    panel = width * n_vectors

    @njit(nogil=True)
    def multiply(table, rows, start, stop, stride, column, source, source_at, target, target_at):  # type: ignore[no-untyped-def]
        for f in range(panel):
            product = source[source_at + f]
            for i in range(start, stop):
                product *= table[rows[i] * stride + column + f]
                if (i - start) % 2 == 1 and not product > LEAST:
                    product = LEAST
            target[target_at + f] = product

    @njit(nogil=True)
    def settle(values, offset, threshold):  # type: ignore[no-untyped-def]
        sums = np.empty((n_vectors, width))
        for f in range(panel):
            if not values[offset + f] > threshold:
                values[offset + f] = 0.0
            sums[f // width, f % width] = values[offset + f]
        n = n_vectors
        while n > 1:
            # neighbours in pairs, one left over at the end
            for v in range(n // 2):
                for k in range(width):
                    sums[v, k] = sums[2 * v, k] + sums[2 * v + 1, k]
            if n % 2:
                sums[n // 2] = sums[n - 1]
            n = n // 2 + n % 2
        n = width
        while n > 1:
            n //= 2
            for k in range(n):
                sums[0, k] += sums[0, k + n]
        return sums[0, 0]

    @njit(nogil=True)
    def spread(table, rows, start, stop, stride, column, source, source_at, scale, total):  # type: ignore[no-untyped-def]
        for f in range(panel):
            added = source[source_at + f] * scale
            for i in range(start, stop):
                table[rows[i] * stride + column + f] += added
            total[column + f] += added

    return Lanes(multiply, settle, spread)
