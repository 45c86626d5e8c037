"""One thread for linear algebra: runs have the same bits on machines of any size, and workers do not fight."""

from __future__ import annotations

import os
import sys

LIBRARIES = ("OMP", "OPENBLAS", "MKL", "BLIS")
"""Libraries of linear algebra by the names of their settings: OMP_NUM_THREADS, ..."""


def use_one_thread() -> None:
    """Have linear algebra work in one thread, in this process and those that it starts.

    Notes
    -----
    Sums that are shared out over threads have other last bits with each number of them, and a search that compares
    likelihoods may then take another way. Processors are kept busy by Dask, one thread of a worker each. A number of
    threads that is set in the environment stays.
    """
    if any(f"{library}_NUM_THREADS" in os.environ for library in LIBRARIES):
        return
    os.environ |= {f"{library}_NUM_THREADS": "1" for library in LIBRARIES}
    if "numpy" in sys.modules:
        # it has read the environment already
        from threadpoolctl import threadpool_limits

        threadpool_limits(1)
