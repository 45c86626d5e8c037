"""Which kernels this process uses: the processor's vectors, vector code or plain loops, and where code is kept."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass


@dataclass(frozen=True)
class KernelFacts:
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


def find_kernel_facts() -> KernelFacts:
    """Find out which kernels this process uses.

    Vector code of counting is loaded, or compiled where no earlier process has: a second or two, once on a machine.
    """
    # numba loads on first use
    from pmflib.kernels.llvm.fallback import PLAIN_VARIABLE
    from pmflib.kernels.llvm.host import describe_processor
    from pmflib.kernels.llvm.saved_code import find_folder
    from pmflib.kernels.pair_checks import planes_work

    processor, vectors = describe_processor()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        # its answer is kept, and its warning is given once: this process may have had it already
        folder = find_folder.__wrapped__()
        works = planes_work()
    reasons = [str(each.message) for each in said]
    return KernelFacts(
        processor=processor,
        vectors=vectors,
        is_plain=bool(os.environ.get(PLAIN_VARIABLE)),
        works=works,
        folder="" if folder is None else str(folder),
        reason="" if folder is not None else reasons[0],
    )
