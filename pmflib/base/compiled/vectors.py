"""Bit planes, panels and combined codes in LLVM's intermediate language, with vectors that stay in registers.

LLVM accepts vectors of any length and splits them to fit the processor: AVX-512 takes 64 codes per instruction, AVX2
takes two instructions, SSE2 and ARM four. Nothing here depends on the processor; the only LLVM function called is
``llvm.ctpop`` (population count), which is available everywhere. Numba's own loops are slower because they are limited
to 256-bit vectors and keep intermediate counts in memory.

Array arguments are contiguous, positions count elements, and bounds are not checked. If a new version of numba or LLVM
breaks this code, `pmflib.counts.kernels.readiness.vector_code_works` detects it and plain loops are used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pmflib.base.compiled.saved_code import compile_kernel

STRIP_ROWS = 64
"""Number of rows transposed at once: one word of a bit plane."""
STRIP_VARIABLES = 16
"""Number of variables transposed at once."""
LANES = 8
"""Number of words in a vector: 512 bits."""
TILE = 4
"""Number of planes on each side of a register tile: 16 running counts and 8 operands fit in 32 registers."""

I32, I64 = ir.IntType(32), ir.IntType(64)
WORDS = ir.VectorType(I64, LANES)


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, array).data


def _at(builder: Any, data: Any, position: Any, kind: Any) -> Any:
    return builder.bitcast(builder.gep(data, [position]), kind.as_pointer())


def _shuffle(builder: Any, pair: Any, positions: list[int]) -> Any:
    pattern = ir.Constant(ir.VectorType(I32, len(positions)), positions)
    return builder.shuffle_vector(*pair, pattern)


def _transpose(
    context: Any, builder: Any, kinds: Any, codes: Any, position_of: Any, strip: Any
) -> None:
    """Transpose 64 rows of 16 codes at the given positions.

    Four groups of 16 rows lie side by side in a vector, so the 16 x 16 transpositions of all four use the same 64
    interleavings within groups, and each result holds the 64 codes of one variable in order.
    """
    size = STRIP_VARIABLES
    source = _data(context, builder, kinds[0], codes)
    target = _data(context, builder, kinds[-1], strip)
    code = context.get_value_type(kinds[0].dtype)
    chunk = ir.VectorType(code, size)
    width = code.width // 8

    def load(row: int) -> Any:
        return builder.load(_at(builder, source, position_of(row), chunk), align=width)

    rows = []
    for row in range(size):
        quarters = [load(row + size * group) for group in range(4)]
        halves = [_shuffle(builder, quarters[k : k + 2], list(range(2 * size))) for k in (0, 2)]
        rows.append(_shuffle(builder, halves, list(range(4 * size))))
    groups = range(0, STRIP_ROWS, size)
    low, high = (
        [g + k + side for g in groups for k in half for side in (0, STRIP_ROWS)]
        for half in (range(size // 2), range(size // 2, size))
    )
    for _ in range(4):
        pairs = [(rows[k], rows[k + size // 2]) for k in range(size // 2)]
        rows = [_shuffle(builder, pair, half) for pair in pairs for half in (low, high)]
    for j, row in enumerate(rows):
        position = ir.Constant(I64, STRIP_ROWS * j)
        builder.store(row, _at(builder, target, position, row.type), align=width)


@intrinsic
def transpose_strip(typing, codes, start, stride, strip):  # type: ignore[no-untyped-def]
    """Transpose 64 rows of 16 codes: ``strip[64 * j + r] = codes[start + stride * r + j]``."""
    signature = types.void(codes, types.intp, types.intp, strip)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        codes, start, stride, strip = arguments

        def position_of(row: int) -> Any:
            return builder.add(start, builder.mul(stride, ir.Constant(I64, row)))

        _transpose(context, builder, signature.args, codes, position_of, strip)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def transpose_scattered(typing, codes, positions, column, strip):  # type: ignore[no-untyped-def]
    """Transpose 64 rows at arbitrary positions: ``strip[64 * j + r] = codes[positions[r] + column + j]``, int64."""
    signature = types.void(codes, positions, types.intp, strip)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        codes, positions, column, strip = arguments
        starts = _data(context, builder, signature.args[1], positions)

        def position_of(row: int) -> Any:
            return builder.add(builder.load(builder.gep(starts, [I64(row)])), column)

        _transpose(context, builder, signature.args, codes, position_of, strip)
        return context.get_dummy_value()

    return signature, generate


def _compare(operator: str) -> Any:
    @intrinsic
    def compare(typing, strip, position, level):  # type: ignore[no-untyped-def]
        signature = types.uint64(strip, types.intp, strip.dtype)

        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            strip, position, level = arguments
            data = _data(context, builder, signature.args[0], strip)
            kind = ir.VectorType(level.type, STRIP_ROWS)
            codes = builder.load(_at(builder, data, position, kind), align=level.type.width // 8)
            first = builder.insert_element(ir.Constant(kind, ir.Undefined), level, I32(0))
            levels = _shuffle(builder, (first, first), [0] * STRIP_ROWS)
            return builder.bitcast(builder.icmp_signed(operator, codes, levels), I64)

        return signature, generate

    return compare


mask_equal = _compare("==")
"""``mask_equal(strip, position, level)``: bit r of the returned uint64 is set if ``strip[position + r] == level``."""
mask_least = _compare(">=")
"""``mask_least(strip, position, level)``: the same for ``>=``."""


@intrinsic
def count_ones(typing, word):  # type: ignore[no-untyped-def]
    """Return the number of ones in a uint64."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@intrinsic
def count_tile(typing, planes, left, right, start, stop, counts):  # type: ignore[no-untyped-def]
    """Count the rows common to 4 x 4 pairs of planes over words [start, stop), in vectors of 8.

    planes: uint64, flat. left, right: int64 (4,), where each plane starts. counts: int64 (16,), overwritten;
    entry 4 * i + j is the number of ones of plane i of left AND plane j of right.
    """
    integer = types.intp
    signature = types.void(planes, left, right, integer, integer, counts)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        arrays = (0, 1, 2, 5)
        planes, left, right, counts = (
            _data(context, builder, signature.args[k], arguments[k]) for k in arrays
        )
        start, stop = arguments[3:5]
        ones = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(WORDS, [WORDS]), f"llvm.ctpop.v{LANES}i64"
        )
        sides = [
            [builder.gep(planes, [builder.load(builder.gep(side, [I64(k)]))]) for k in range(TILE)]
            for side in (left, right)
        ]
        sums = [
            cgutils.alloca_once_value(builder, ir.Constant(WORDS, None)) for _ in range(TILE**2)
        ]
        with cgutils.for_range_slice(builder, start, stop, I64(LANES), I64) as (word, _):
            words = [
                [builder.load(_at(builder, plane, word, WORDS), align=8) for plane in side]
                for side in sides
            ]
            for k, total in enumerate(sums):
                both = builder.and_(words[0][k // TILE], words[1][k % TILE])
                builder.store(builder.add(builder.load(total), builder.call(ones, [both])), total)
        totals = [builder.load(total) for total in sums]
        # three rounds of adding neighbours leave a vector with the sums of eight, in order
        while len(totals) > TILE**2 // LANES:
            halves = [list(range(first, 2 * LANES, 2)) for first in (0, 1)]
            totals = [
                builder.add(*(_shuffle(builder, totals[k : k + 2], half) for half in halves))
                for k in range(0, len(totals), 2)
            ]
        for k, total in enumerate(totals):
            builder.store(total, _at(builder, counts, I64(LANES * k), WORDS), align=8)
        return context.get_dummy_value()

    return signature, generate


INDEX = ir.IntType(64)
_LANE = ir.IntType(32)
_DOUBLE = ir.DoubleType()


@dataclass(frozen=True)
class Panel:
    """Code generator for panels of ``width * n_vectors`` float64; offsets count float64 values, not bytes.

    Parameters
    ----------
    width
        Number of float64 per vector, a power of 2.
    n_vectors
        Number of vectors per panel.
    """

    width: int
    n_vectors: int

    @cached_property
    def vector(self) -> Any:
        """Return the type of a vector."""
        return ir.VectorType(_DOUBLE, self.width)

    def constant(self, value: float) -> Any:
        """Return a constant vector."""
        return ir.Constant(self.vector, [value] * self.width)

    def load_vector(self, builder: Any, pointer: Any, offset: Any) -> Any:
        """Load a vector at an offset."""
        return builder.load(self._at(builder, pointer, offset), align=8)

    def store_vector(self, builder: Any, value: Any, pointer: Any, offset: Any) -> None:
        """Store a vector at an offset."""
        builder.store(value, self._at(builder, pointer, offset), align=8)

    def load(self, builder: Any, pointer: Any, offset: Any) -> list[Any]:
        """Load a panel at an offset."""
        return [
            self.load_vector(builder, pointer, position)
            for position in self._positions(builder, offset)
        ]

    def store(self, builder: Any, values: list[Any], pointer: Any, offset: Any) -> None:
        """Store a panel at an offset."""
        for value, position in zip(values, self._positions(builder, offset), strict=True):
            self.store_vector(builder, value, pointer, position)

    def _positions(self, builder: Any, offset: Any) -> list[Any]:
        return [builder.add(offset, INDEX(v * self.width)) for v in range(self.n_vectors)]

    def _at(self, builder: Any, pointer: Any, offset: Any) -> Any:
        return builder.bitcast(builder.gep(pointer, [offset]), self.vector.as_pointer())

    def fill(self, builder: Any, scalar: Any) -> Any:
        """Return a vector filled with a run-time value."""
        none = ir.Constant(self.vector, ir.Undefined)
        one = builder.insert_element(none, scalar, _LANE(0))
        return _shuffle_lanes(builder, one, none, [0] * self.width)

    def raise_to(self, builder: Any, values: list[Any], least: Any) -> list[Any]:
        """Replace values not above a bound by the bound."""
        return [
            builder.select(builder.fcmp_ordered(">", value, least), value, least)
            for value in values
        ]

    def add_vectors(self, builder: Any, values: list[Any]) -> Any:
        """Sum the vectors of a panel pairwise; an odd one is added at the end."""
        while len(values) > 1:
            pairs = [builder.fadd(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
            values = pairs + values[len(pairs) * 2 :]
        return values[0]

    def add_lanes(self, builder: Any, values: list[Any]) -> list[Any]:
        """Sum the lanes of each vector, upper half onto lower half; returns the sums side by side, in order."""
        part = self.width
        while part > 1:
            firsts = range(0, 2 * self.width, part)
            low = [first + k for first in firsts for k in range(part // 2)]
            high = [position + part // 2 for position in low]
            values = [
                builder.fadd(
                    _shuffle_lanes(builder, a, b, low), _shuffle_lanes(builder, a, b, high)
                )
                for a, b in zip(values[::2], values[1::2], strict=True)
            ]
            part //= 2
        return values


def _shuffle_lanes(builder: Any, one: Any, other: Any, positions: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(_LANE, len(positions)), positions)
    return builder.shuffle_vector(one, other, mask)


def repeat(
    builder: Any,
    start: Any,
    stop: Any,
    step: int,
    carried: list[Any],
    body: Callable[..., list[Any]],
) -> list[Any]:
    """Emit a loop from start to below stop; ``body(i, values)`` returns the next values carried in registers."""
    before = builder.block
    loop, end = builder.append_basic_block("loop"), builder.append_basic_block("end")
    builder.cbranch(builder.icmp_signed("<", start, stop), loop, end)
    builder.position_at_end(loop)
    i = builder.phi(INDEX)
    now = [builder.phi(value.type) for value in carried]
    new = body(i, now)
    following = builder.add(i, INDEX(step))
    last = builder.block
    for phi, first, next_one in zip([i, *now], [start, *carried], [following, *new], strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(next_one, last)
    builder.cbranch(builder.icmp_signed("<", following, stop), loop, end)
    builder.position_at_end(end)
    out = [builder.phi(value.type) for value in carried]
    for phi, first, next_one in zip(out, carried, new, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(next_one, last)
    return out


def round_down(builder: Any, start: Any, stop: Any, step: int) -> Any:
    """Return the last position reachable from start by whole steps (a power of 2) without passing stop."""
    whole = builder.and_(builder.sub(stop, start), INDEX(-step))
    return builder.add(start, whole)


LISTED = 8
"""Number of entries made at once: 256 bits."""

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_ENTRIES = ir.VectorType(_I32, LISTED)


def count_read(size: int) -> int:
    """Return the number of codes read at once for combinations of ``size`` variables: a power of 2."""
    return 1 << (LISTED * size - 1).bit_length()


@lru_cache
def make_combine(size: int) -> Any:
    """Make the function that combines 8 times ``size`` neighbouring codes.

    Parameters
    ----------
    size
        Number of codes per combination.

    Returns
    -------
    combine(codes, code_at, bases, steps, list_at, entries, entry_at): for j < 8, ``entries[entry_at + j]`` becomes
    ``bases[list_at + j]`` plus, for k < size, ``codes[code_at + j * size + k] * steps[list_at * size + 8 * k + j]``.
    All arrays are contiguous, and all but codes int32; `count_read` codes are read.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        codes, bases, steps, entries = (
            context.make_array(signature.args[p])(context, builder, args[p]).data
            for p in (0, 2, 3, 5)
        )
        code_at, list_at, entry_at = args[1], args[4], args[6]

        def find(pointer: Any, position: Any, kind: Any) -> Any:
            return builder.bitcast(builder.gep(pointer, [position]), kind.as_pointer())

        code = context.get_value_type(signature.args[0].dtype)
        whole = ir.VectorType(code, count_read(size))
        loaded = builder.load(find(codes, code_at, whole), align=code.width // 8)
        total = builder.load(find(bases, list_at, _ENTRIES), align=4)
        first = builder.mul(list_at, _I64(size))
        for k in range(size):
            positions = [j * size + k for j in range(LISTED)]
            mask = ir.Constant(_ENTRIES, positions)
            one = builder.shuffle_vector(loaded, ir.Constant(whole, ir.Undefined), mask)
            spans = builder.load(
                find(steps, builder.add(first, _I64(LISTED * k)), _ENTRIES), align=4
            )
            total = builder.add(total, builder.mul(builder.sext(one, _ENTRIES), spans))
        builder.store(total, find(entries, entry_at, _ENTRIES), align=4)
        return context.get_dummy_value()

    @intrinsic
    def combine(_, codes, code_at, bases, steps, list_at, entries, entry_at):  # type: ignore[no-untyped-def]
        position = types.intp
        return types.void(codes, position, bases, steps, position, entries, position), generate

    return combine


@lru_cache
def make_plain_combine(size: int) -> Any:
    """Make the plain-loop equivalent of `make_combine`."""
    n_listed, n_combined = np.uint64(LISTED), np.uint64(size)

    @compile_kernel(size, saved=False)
    def combine(codes, code_at, bases, steps, list_at, entries, entry_at):  # type: ignore[no-untyped-def]
        # unsigned positions: otherwise numba handles negative ones and does not vectorise the loops
        first_code, first, position = np.uint64(code_at), np.uint64(list_at), np.uint64(entry_at)
        for j in range(n_listed):
            entry = bases[first + j]
            for k in range(n_combined):
                step = steps[first * n_combined + n_listed * k + j]
                entry += np.int32(codes[first_code + j * n_combined + k]) * step
            entries[position + j] = entry

    return combine
