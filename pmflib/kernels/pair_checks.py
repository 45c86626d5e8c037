"""Whether the kernels that count pairs are ready: compiled by an earlier process, and right in vector code."""

import threading
from functools import cache
from typing import Literal, TypeAlias

import numpy as np

from pmflib.kernels.llvm.fallback import vector_code_works

Compiled: TypeAlias = Literal["planes", "fold planes", "tiles"]

_compiling: dict[Compiled, threading.Thread] = {}


def compile_in_background(method: Compiled) -> bool:
    """Have a method compiled beside the work, once in a process; returns whether that is done.

    The thread ends with the process: then a later one compiles.
    """
    if method not in _compiling:
        _compiling[method] = threading.Thread(target=_call_once, args=(method,), daemon=True)
        _compiling[method].start()
    return not _compiling[method].is_alive()


def _call_once(method: Compiled) -> None:
    """Call a method's kernels on a few rows."""
    if method == "tiles":
        from pmflib.kernels.tiles import add_tiles

        indptr, indices = np.array([0, 2]), np.array([0, 2], np.int32)
        add_tiles(indptr, indices, np.array([0, 2, 4]), np.zeros((4, 4), np.int64))
    elif method == "planes":
        planes_work()
    else:
        fold_planes_work()


@cache
def is_compiled(method: Compiled) -> bool:
    """Whether code of a method's largest kernel was on disk at the first call."""
    # numba loads on first use
    try:
        if method == "planes":
            from pmflib.kernels.planes import add_codes as kernel
        elif method == "fold planes":
            from pmflib.kernels.fold_planes import add_folds as kernel
        else:
            from pmflib.kernels.tiles import fill_tile as kernel
    except ImportError:
        return False
    from pmflib.kernels.llvm.saved_code import has_saved_code

    return has_saved_code(kernel)


@cache
def planes_work() -> bool:
    """Whether the vector code of the bit planes may be used, and compiles under the numba installed, and is right."""
    return vector_code_works("counting", _planes_count_right)


@cache
def fold_planes_work() -> bool:
    """Whether the same holds of the bit planes that deal rows to folds."""
    return vector_code_works("counting", _fold_planes_count_right)


def _planes_count_right() -> bool:
    """Whether the pairs of three rows are counted right."""
    from pmflib.kernels.planes import add_planes

    table = np.zeros((4, 4), np.int64)
    add_planes(_CODES, _OFFSETS, table)
    return bool((table == _PAIRS).all())


def _fold_planes_count_right() -> bool:
    """Whether the pairs of three rows, of two folds together, are counted right, and a code out of range is found."""
    from pmflib.kernels.fold_planes import count_folds

    tables, n_rows = np.zeros((2, 4, 4), np.int64), np.zeros(2, np.int64)
    # rows that vectors can read are followed by some that they cannot
    codes = np.tile(_CODES, (6, 1))
    right = count_folds(codes, _OFFSETS, tables, n_rows)
    wrong = count_folds(codes + np.int8(1), _OFFSETS, np.zeros_like(tables), n_rows.copy())
    return right and not wrong and bool((tables.sum(axis=0) == 6 * np.array(_PAIRS)).all())


_CODES, _OFFSETS = np.array([[0, 1], [1, -1], [0, 0]], np.int8), np.array([0, 2, 4])
_PAIRS = [[2, 0, 1, 1], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
