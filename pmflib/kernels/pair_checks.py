"""Whether the kernels that count pairs are ready: compiled by an earlier process, and right in vector code."""

from functools import cache
from typing import Literal

import numpy as np

from pmflib.kernels.llvm.fallback import vector_code_works


@cache
def is_compiled(method: Literal["planes", "tiles"]) -> bool:
    """Whether code of a method's largest kernel was on disk at the first call."""
    # numba loads on first use
    try:
        if method == "planes":
            from pmflib.kernels.planes import add_codes as kernel
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


def _planes_count_right() -> bool:
    """Whether the pairs of three rows are counted right."""
    from pmflib.kernels.planes import add_planes

    codes, offsets = np.array([[0, 1], [1, -1], [0, 0]], np.int8), np.array([0, 2, 4])
    table = np.zeros((4, 4), np.int64)
    add_planes(codes, offsets, table)
    right = [[2, 0, 1, 1], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    return bool((table == right).all())
