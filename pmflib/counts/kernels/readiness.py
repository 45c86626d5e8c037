"""State of the kernels in this process: which ones are used, whether they are compiled, whether vector code works."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

import numpy as np

PLAIN_VARIABLE = "PMF_PLAIN_KERNELS"
"""Environment variable; any non-empty value disables vector code in favour of plain numba."""
_warned: set[str] = set()

Compiled: TypeAlias = Literal["planes", "fold planes", "tiles", "joined"]

_compiling: dict[Compiled, threading.Thread] = {}


def compile_in_background(method: Compiled) -> bool:
    """Compile the kernels of a method in a background thread, once per process; returns whether it was started.

    The thread ends with the process; a later process then compiles.
    """
    if method not in _compiling:
        _compiling[method] = threading.Thread(target=_call_once, args=(method,), daemon=True)
        _compiling[method].start()
    return not _compiling[method].is_alive()


def _call_once(method: Compiled) -> None:
    """Call a method's kernels on a few rows."""
    if method == "tiles":
        from pmflib.counts.kernels.scatter import add_tiles

        indptr, indices = np.array([0, 2]), np.array([0, 2], np.int32)
        add_tiles(indptr, indices, np.array([0, 2, 4]), np.zeros((4, 4), np.int64))
    elif method == "joined":
        from pmflib.counts.kernels.joined_variables import add_joined

        for codes in (_CODES, _CODES.astype(np.int16)):
            rows, ones = np.arange(len(codes)), np.ones(len(codes), np.int64)
            add_joined(codes, rows, ones, _OFFSETS, np.zeros((4, 4), np.int64))
    elif method == "planes":
        planes_work()
    else:
        fold_planes_work()


@cache
def is_compiled(method: Compiled) -> bool:
    """Return whether code of a method's largest kernel was on disk before the first call."""
    # importing numba is slow, so it is delayed
    try:
        if method == "planes":
            from pmflib.counts.kernels.planes import add_codes as kernel
        elif method == "fold planes":
            from pmflib.counts.kernels.fold_planes import add_folds as kernel
        elif method == "joined":
            from pmflib.counts.kernels.joined_variables import add_groups as kernel
        else:
            from pmflib.counts.kernels.scatter import fill_tile as kernel
    except ImportError:
        return False
    from pmflib.base.compiled.saved_code import has_saved_code

    return has_saved_code(kernel)


def vector_code_works(what: str, check: Callable[[], bool]) -> bool:
    """Return whether the vector code of some kernels is enabled, compiles with the installed numba, and is correct.

    Parameters
    ----------
    what
        Description of the kernels, used as the subject of the warning.
    check
        Compiles and calls the kernels, and returns whether the results are correct.

    Warns
    -----
    RuntimeWarning
        If the vector code is unusable, once for each ``what``; plain code is used instead.
    """
    if os.environ.get(PLAIN_VARIABLE):
        return False
    try:
        works = check()
    except Exception as error:
        # numba and llvmlite do not specify the exceptions for code that they no longer support
        reason = f"{type(error).__name__}: {error}"
    else:
        if works:
            return True
        reason = "wrong results"
    if what not in _warned:
        _warned.add(what)
        warnings.warn(
            f"vector code fails with the installed numba ({reason}); {what} uses plain numba instead, which is slower. "
            f"Set {PLAIN_VARIABLE}=1 to silence this, or install the numba version of the lock file",
            RuntimeWarning,
            stacklevel=3,
        )
    return False


@cache
def planes_work() -> bool:
    """Return whether the vector code for bit planes can be used."""
    return vector_code_works("counting", _planes_count_right)


@cache
def fold_planes_work() -> bool:
    """Return whether the vector code for bit planes by fold can be used."""
    return vector_code_works("counting", _fold_planes_count_right)


def _planes_count_right() -> bool:
    """Return whether the pairs of three rows are counted correctly."""
    from pmflib.counts.kernels.planes import add_planes

    table = np.zeros((4, 4), np.int64)
    add_planes(_CODES, _OFFSETS, table)
    return bool((table == _PAIRS).all())


def _fold_planes_count_right() -> bool:
    """Return whether three rows in two folds are counted correctly and a code out of range is detected."""
    from pmflib.counts.kernels.fold_planes import count_folds

    tables, n_rows = np.zeros((2, 4, 4), np.int64), np.zeros(2, np.int64)
    # rows readable by vectors are followed by rows that are not
    codes = np.tile(_CODES, (6, 1))
    right = count_folds(codes, _OFFSETS, tables, n_rows)
    wrong = count_folds(codes + np.int8(1), _OFFSETS, np.zeros_like(tables), n_rows.copy())
    return right and not wrong and bool((tables.sum(axis=0) == 6 * np.array(_PAIRS)).all())


_CODES, _OFFSETS = np.array([[0, 1], [1, -1], [0, 0]], np.int8), np.array([0, 2, 4])
_PAIRS = [[2, 0, 1, 1], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


@dataclass(frozen=True)
class KernelState:
    """Properties of the kernels in this process.

    Parameters
    ----------
    processor
        Name of the target processor, as LLVM calls it.
    vectors
        Widest vector instruction set of the processor; empty if LLVM reports none.
    is_plain
        Whether PMF_PLAIN_KERNELS disables vector code.
    works
        Whether the vector code for counting compiles and is correct.
    folder
        Folder in which compiled code is stored; empty if there is none.
    reason
        Why there is no folder; empty if there is one.
    """

    processor: str
    vectors: str
    is_plain: bool
    works: bool
    folder: str
    reason: str


def find_kernel_state() -> KernelState:
    """Determine which kernels this process uses.

    Vector code for counting is loaded, or compiled if no earlier process has: a second or two, once per machine.
    """
    # importing numba is slow, so it is delayed
    from pmflib.base.compiled.saved_code import describe_processor, find_folder

    processor, vectors = describe_processor()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        # the result is cached, and its warning is given once: possibly earlier in this process
        folder = find_folder.__wrapped__()
        works = planes_work()
    reasons = [str(each.message) for each in said]
    return KernelState(
        processor=processor,
        vectors=vectors,
        is_plain=bool(os.environ.get(PLAIN_VARIABLE)),
        works=works,
        folder="" if folder is None else str(folder),
        reason="" if folder is not None else reasons[0],
    )
