"""Resources of this process: processors, memory, a private folder; and regular calls during long work."""

from __future__ import annotations

import os
import resource
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path

from pmflib.base.errors import ConfigError


def count_processors() -> int:
    """Return the number of processors, at least 1: those the process is bound to, if the system reports them."""
    # macOS and Windows do not bind processes to processors
    bound = getattr(os, "sched_getaffinity", None)
    return len(bound(0)) if bound else os.cpu_count() or 1


GROUP_FILES = (
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    "/sys/fs/cgroup/memory/memory.soft_limit_in_bytes",
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory.high",
)
"""Files in which Linux reports the limits of a process's control group, versions 1 and 2."""

USED_SHARE = 0.7
"""Share of the free memory, or of a limit, that data may use; the rest is for unplanned use."""


def find_memory_limit() -> int:
    """Return the bytes that a plan may use on this machine: 70 % of the free memory and of the process limit.

    Dask computes the same limits, but importing it takes half a second, which small runs avoid.
    """
    import psutil

    return int(USED_SHARE * min([psutil.virtual_memory().available, *_list_limits()]))


@dataclass(frozen=True)
class MachineMemory:
    """Memory of a machine, as seen by a process on it.

    Parameters
    ----------
    available
        Free memory, bytes.
    resident
        Memory used by the process, bytes.
    limit
        Limit of the process, bytes; 2^63 if there is none.
    """

    available: int
    resident: int
    limit: int

    @classmethod
    def read(cls) -> MachineMemory:
        """Read the memory of this machine."""
        import psutil

        limit = min([1 << 63, *_list_limits()])
        return cls(psutil.virtual_memory().available, psutil.Process().memory_info().rss, limit)


def _list_limits() -> list[int]:
    """List the limits of the control group and of the resident set of the process, bytes."""
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


def find_temporary_danger() -> str:
    """Return who else could replace files in the folder for temporary files, or "" if nobody could.

    The owner of the folder can, even if it is sticky, so it must be this user or the administrator. A folder writable
    by all must be sticky, unless it is a volume mounted for a container, which nobody else uses.
    """
    folder = tempfile.gettempdir()
    if not hasattr(os, "geteuid"):
        # Windows has no user ids of this kind; its user folders are private
        return ""
    found = os.stat(folder)
    if found.st_uid not in (0, os.geteuid()):
        return f"the folder of temporary files {folder!r} belongs to another user ({found.st_uid})"
    mode = stat.S_IMODE(found.st_mode)
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX and not os.path.ismount(folder):
        return (
            f"all users can replace files in the folder of temporary files {folder!r} (mode {mode:o}, "
            "without the sticky bit)"
        )
    return ""


@contextmanager
def make_private_folder() -> Iterator[str]:
    """Make a temporary folder that only this user can read, write and replace; it is deleted with the context.

    Yields
    ------
    Path of the folder, in TMPDIR or the system's folder for temporary files.

    Raises
    ------
    ConfigError
        If others could replace it.
    """
    if danger := find_temporary_danger():
        raise ConfigError(
            f"{danger}, who could redirect this process to write other files: set TMPDIR to a folder of your own"
        )
    with tempfile.TemporaryDirectory(prefix="pmf-", ignore_cleanup_errors=True) as folder:
        yield folder


@contextmanager
def call_regularly(function: Callable[[], None] | None, seconds: float) -> Iterator[None]:
    """Call a function at regular intervals from another thread within the context.

    The thread has the caller's context variables, so listeners of the caller receive its events.

    Parameters
    ----------
    function
        Function to call; never called after the context has ended. None calls nothing.
    seconds
        Interval between calls, above 0.
    """
    if function is None:
        yield
        return
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(seconds):
            function()

    thread = threading.Thread(
        target=copy_context().run, args=(go_on,), daemon=True, name="heartbeat"
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def load_while_there_is_room() -> None:
    """Import SciPy's linear algebra in advance if the address space is limited.

    Notes
    -----
    OpenBLAS requests memory while it is loaded, and repeats the request forever if there is none: a run that imports it
    late would hang without a message.
    """
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        import scipy.special  # noqa: F401
