"""Processors of this machine that this process may use."""

import os


def count_processors() -> int:
    """Number of processors, at least 1: those the process is bound to, where the system reports them."""
    # macOS and Windows do not bind processes
    bound = getattr(os, "sched_getaffinity", None)
    return len(bound(0)) if bound else os.cpu_count() or 1
