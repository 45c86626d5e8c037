"""Limits that the system sets on the memory of this process."""

from __future__ import annotations

import sys
from pathlib import Path

GROUP_FILES = (
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    "/sys/fs/cgroup/memory/memory.soft_limit_in_bytes",
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory.high",
)
"""Files in which Linux holds the limits of the control group of a process, versions 1 and 2."""


def find_memory_limit() -> int:
    """Bytes that a plan may use on this machine: 70 % of the free memory, and of the limit on this process.

    Dask finds the same limits; importing it takes half a second, and small runs do without it.
    """
    import psutil

    return int(0.7 * min([psutil.virtual_memory().available, *_list_limits()]))


def _list_limits() -> list[int]:
    """Limits of the control group, and of the resident set of the process, bytes."""
    limits = []
    for name in GROUP_FILES:
        try:
            text = Path(name).read_text("ascii").strip()
        except OSError:
            continue
        if text.isdecimal():
            limits.append(int(text))
    if sys.platform != "win32":
        import resource

        limits.append(resource.getrlimit(resource.RLIMIT_RSS)[1])
    return [limit for limit in limits if limit > 0]
