"""Which kernels this process uses, whether they are compiled, and whether vector code works."""

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
"""Environment variable: any text in it keeps everything to plain numba."""
_warned: set[str] = set()

Compiled: TypeAlias = Literal["planes", "fold planes", "tiles", "joined"]

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
        from pmflib.kernels.scatter import add_tiles

        indptr, indices = np.array([0, 2]), np.array([0, 2], np.int32)
        add_tiles(indptr, indices, np.array([0, 2, 4]), np.zeros((4, 4), np.int64))
    elif method == "joined":
        from pmflib.kernels.joined_variables import add_joined

        for codes in (_CODES, _CODES.astype(np.int16)):
            rows, ones = np.arange(len(codes)), np.ones(len(codes), np.int64)
            add_joined(codes, rows, ones, _OFFSETS, np.zeros((4, 4), np.int64))
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
        elif method == "joined":
            from pmflib.kernels.joined_variables import add_groups as kernel
        else:
            from pmflib.kernels.scatter import fill_tile as kernel
    except ImportError:
        return False
    from pmflib.kernels.llvm.saved_code import has_saved_code

    return has_saved_code(kernel)


def vector_code_works(what: str, check: Callable[[], bool]) -> bool:
    """Whether the vector code of some kernels may be used, and compiles under the numba installed, and is right.

    Parameters
    ----------
    what
        What the kernels do, as the subject of a sentence.
    check
        Compiles the kernels, calls them, and says whether the results are right.

    Warns
    -----
    RuntimeWarning
        If they are not usable, once for each ``what``; the caller goes on without them.
    """
    if os.environ.get(PLAIN_VARIABLE):
        return False
    try:
        works = check()
    except Exception as error:
        # numba and llvmlite promise no kind of exception for code that they no longer understand
        reason = f"{type(error).__name__}: {error}"
    else:
        if works:
            return True
        reason = "wrong results"
    if what not in _warned:
        _warned.add(what)
        warnings.warn(
            f"vector code fails under the numba installed ({reason}); {what} goes on in plain numba, slower. "
            f"Set {PLAIN_VARIABLE}=1 to silence this, or install the numba of the lock file",
            RuntimeWarning,
            stacklevel=3,
        )
    return False


@cache
def planes_work() -> bool:
    """Whether the vector code of the bit planes may be used, and compiles under the numba installed, and is right."""
    return vector_code_works("counting", _planes_count_right)


@cache
def fold_planes_work() -> bool:
    """Whether the same holds of the bit planes that assign rows to folds."""
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


@dataclass(frozen=True)
class KernelState:
    """What kernels of this process are made of.

    Parameters
    ----------
    processor
        Name of the processor that code is made for, as LLVM calls it.
    vectors
        Widest instruction set of vectors that it has; empty where LLVM reports none.
    is_plain
        Whether PMF_PLAIN_KERNELS keeps everything to plain numba.
    works
        Whether the vector code of counting compiles here, and counts right.
    folder
        Folder in which compiled code is kept; empty where there is none.
    reason
        Why there is no folder; empty where there is one.
    """

    processor: str
    vectors: str
    is_plain: bool
    works: bool
    folder: str
    reason: str


def find_kernel_state() -> KernelState:
    """Find out which kernels this process uses.

    Vector code of counting is loaded, or compiled where no earlier process has: a second or two, once on a machine.
    """
    # numba loads on first use
    from pmflib.kernels.llvm.saved_code import describe_processor, find_folder

    processor, vectors = describe_processor()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        # its answer is kept, and its warning is given once: this process may have had it already
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
