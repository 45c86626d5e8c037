"""Bit planes in LLVM's own language: codes transposed and compared, planes multiplied.

LLVM knows vectors of any length and splits them into what the processor has: AVX-512 takes 64 codes in an
instruction, AVX2 in two, SSE2 and ARM in four. Nothing here names a processor; the one LLVM function called is
``llvm.ctpop`` (number of ones), which has an expansion everywhere. Numba's own loops are slower, because it caps
vectors at 256 bits and keeps counting results in memory.

Array arguments are contiguous, positions count elements, and no bounds are checked. What breaks when numba or
LLVM change is caught by `pmflib.kernels.llvm.fallback`, and the plain scatter takes over.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

STRIP_ROWS = 64
"""Rows transposed at once: a word of a bit plane."""
STRIP_VARIABLES = 16
"""Variables transposed at once."""
LANES = 8
"""Words in a vector: 512 bits."""
TILE = 4
"""Planes on each side of a register tile: 16 running counts and 8 operands fit in 32 registers."""

I32, I64 = ir.IntType(32), ir.IntType(64)
WORDS = ir.VectorType(I64, LANES)


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, array).data


def _at(builder: Any, data: Any, position: Any, kind: Any) -> Any:
    return builder.bitcast(builder.gep(data, [position]), kind.as_pointer())


def _shuffle(builder: Any, pair: Any, places: list[int]) -> Any:
    pattern = ir.Constant(ir.VectorType(I32, len(places)), places)
    return builder.shuffle_vector(*pair, pattern)


def _transpose(
    context: Any, builder: Any, kinds: Any, codes: Any, place_of: Any, strip: Any
) -> None:
    """Transpose the 64 rows of 16 codes that begin at the places given.

    Four groups of 16 rows lie side by side in a vector, so that the 16 x 16 transpositions of all four are the
    same 64 interleavings within groups, and each result holds a variable's 64 codes in order.
    """
    size = STRIP_VARIABLES
    source = _data(context, builder, kinds[0], codes)
    target = _data(context, builder, kinds[-1], strip)
    code = context.get_value_type(kinds[0].dtype)
    piece = ir.VectorType(code, size)
    width = code.width // 8

    def load(row: int) -> Any:
        return builder.load(_at(builder, source, place_of(row), piece), align=width)

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
        place = ir.Constant(I64, STRIP_ROWS * j)
        builder.store(row, _at(builder, target, place, row.type), align=width)


@intrinsic
def transpose_strip(typing, codes, start, stride, strip):  # type: ignore[no-untyped-def]
    """Transpose 64 rows of 16 codes: ``strip[64 * j + r] = codes[start + stride * r + j]``."""
    signature = types.void(codes, types.intp, types.intp, strip)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        codes, start, stride, strip = arguments

        def place_of(row: int) -> Any:
            return builder.add(start, builder.mul(stride, ir.Constant(I64, row)))

        _transpose(context, builder, signature.args, codes, place_of, strip)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def transpose_places(typing, codes, places, column, strip):  # type: ignore[no-untyped-def]
    """Transpose 64 rows that lie anywhere: ``strip[64 * j + r] = codes[places[r] + column + j]``; places: int64."""
    signature = types.void(codes, places, types.intp, strip)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        codes, places, column, strip = arguments
        starts = _data(context, builder, signature.args[1], places)

        def place_of(row: int) -> Any:
            return builder.add(builder.load(builder.gep(starts, [I64(row)])), column)

        _transpose(context, builder, signature.args, codes, place_of, strip)
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
"""``mask_equal(strip, position, level)``: bit r of the uint64 says whether ``strip[position + r] == level``."""
mask_least = _compare(">=")
"""``mask_least(strip, position, level)``: the same for ``>=``."""


@intrinsic
def count_ones(typing, word):  # type: ignore[no-untyped-def]
    """Number of ones in a uint64."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@intrinsic
def count_tile(typing, planes, left, right, start, stop, counts):  # type: ignore[no-untyped-def]
    """Count the rows that hold both, for 4 x 4 pairs of planes over words [start, stop), in vectors of 8.

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
        # adding neighbours thrice leaves a vector of the sums of eight, in order
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
