"""Codes of neighbouring variables combined into entries of a table, eight at a time."""

from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pmflib.kernels.llvm.saved_code import compile_kernel

LISTED = 8
"""Entries made at once: 256 bits."""

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_ENTRIES = ir.VectorType(_I32, LISTED)


def count_read(size: int) -> int:
    """Codes read at once for combinations of ``size`` variables: a power of 2."""
    return 1 << (LISTED * size - 1).bit_length()


@lru_cache
def make_combine(size: int) -> Any:
    """Combine 8 times ``size`` neighbouring codes.

    Parameters
    ----------
    size
        Codes in a combination.

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

        def find(pointer: Any, place: Any, kind: Any) -> Any:
            return builder.bitcast(builder.gep(pointer, [place]), kind.as_pointer())

        code = context.get_value_type(signature.args[0].dtype)
        whole = ir.VectorType(code, count_read(size))
        held = builder.load(find(codes, code_at, whole), align=code.width // 8)
        total = builder.load(find(bases, list_at, _ENTRIES), align=4)
        first = builder.mul(list_at, _I64(size))
        for k in range(size):
            places = [j * size + k for j in range(LISTED)]
            mask = ir.Constant(_ENTRIES, places)
            one = builder.shuffle_vector(held, ir.Constant(whole, ir.Undefined), mask)
            spans = builder.load(
                find(steps, builder.add(first, _I64(LISTED * k)), _ENTRIES), align=4
            )
            total = builder.add(total, builder.mul(builder.sext(one, _ENTRIES), spans))
        builder.store(total, find(entries, entry_at, _ENTRIES), align=4)
        return context.get_dummy_value()

    @intrinsic
    def combine(_, codes, code_at, bases, steps, list_at, entries, entry_at):  # type: ignore[no-untyped-def]
        place = types.intp
        return types.void(codes, place, bases, steps, place, entries, place), generate

    return combine


@lru_cache
def make_plain_combine(size: int) -> Any:
    """Do as `make_combine` in plain loops."""
    n_listed, n_combined = np.uint64(LISTED), np.uint64(size)

    @compile_kernel(size, saved=False)
    def combine(codes, code_at, bases, steps, list_at, entries, entry_at):  # type: ignore[no-untyped-def]
        # unsigned places: numba looks for negative ones otherwise, and its loops stay scalar
        first_code, first, place = np.uint64(code_at), np.uint64(list_at), np.uint64(entry_at)
        for j in range(n_listed):
            entry = bases[first + j]
            for k in range(n_combined):
                step = steps[first * n_combined + n_listed * k + j]
                entry += np.int32(codes[first_code + j * n_combined + k]) * step
            entries[place + j] = entry

    return combine
