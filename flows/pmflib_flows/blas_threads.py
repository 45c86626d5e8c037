"""Single-threaded linear algebra, so that runs have equal bits on any machine and workers do not compete for cores."""

from __future__ import annotations

import os
import sys

LIBRARIES = ("OMP", "OPENBLAS", "MKL", "BLIS")
"""Linear algebra libraries, by the prefixes of their environment variables: OMP_NUM_THREADS, ..."""


def use_one_thread() -> None:
    """Make linear algebra use one thread, in this process and those that it starts.

    Notes
    -----
    The last bits of sums computed in several threads depend on their number, and a search that compares likelihoods may
    then take a different path. Processors are kept busy by Dask, with one thread per worker. A number of threads set in
    the environment is respected.
    """
    if any(f"{library}_NUM_THREADS" in os.environ for library in LIBRARIES):
        return
    os.environ |= {f"{library}_NUM_THREADS": "1" for library in LIBRARIES}
    if "numpy" in sys.modules:
        # the library has already read the environment
        from threadpoolctl import threadpool_limits

        threadpool_limits(1)
