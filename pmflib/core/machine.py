"""What this process may use of its machine: processors, memory, a private folder; and signs of life while it works."""

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

from pmflib.core.errors import ConfigError


def count_processors() -> int:
    """Number of processors, at least 1: those the process is bound to, where the system reports them."""
    # macOS and Windows do not bind processes
    bound = getattr(os, "sched_getaffinity", None)
    return len(bound(0)) if bound else os.cpu_count() or 1


GROUP_FILES = (
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    "/sys/fs/cgroup/memory/memory.soft_limit_in_bytes",
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory.high",
)
"""Files in which Linux holds the limits of the control group of a process, versions 1 and 2."""

USED_SHARE = 0.7
"""Share of what is free, or of a limit, that data may take: the rest is for what nobody plans."""


def find_memory_limit() -> int:
    """Bytes that a plan may use on this machine: 70 % of the free memory, and of the limit on this process.

    Dask finds the same limits; importing it takes half a second, and small runs do without it.
    """
    import psutil

    return int(USED_SHARE * min([psutil.virtual_memory().available, *_list_limits()]))


@dataclass(frozen=True)
class MachineMemory:
    """Memory of a machine, as a process there sees it.

    Parameters
    ----------
    available
        Bytes that nobody holds.
    resident
        Bytes that the process holds.
    limit
        Bytes that the system allows the process; 2^63 without a limit.
    """

    available: int
    resident: int
    limit: int

    @classmethod
    def read(cls) -> MachineMemory:
        """Memory of the machine that this process runs on."""
        import psutil

        limit = min([1 << 63, *_list_limits()])
        return cls(psutil.virtual_memory().available, psutil.Process().memory_info().rss, limit)


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


def find_temporary_danger() -> str:
    """Say who else could replace files in the folder of temporary files, TMPDIR or the system's; "" if nobody could.

    Its owner can, also where it is sticky: that must be this user or the administrator. Where all may write it must be
    sticky, unless it is a volume that is mounted for a container, where nobody else is.
    """
    folder = tempfile.gettempdir()
    if not hasattr(os, "geteuid"):
        # Windows has no such numbers; its folders of users are private
        return ""
    found = os.stat(folder)
    if found.st_uid not in (0, os.geteuid()):
        return f"the folder of temporary files {folder!r} belongs to another user ({found.st_uid})"
    mode = stat.S_IMODE(found.st_mode)
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX and not os.path.ismount(folder):
        return (
            f"all users may replace what is in the folder of temporary files {folder!r} (mode {mode:o}, "
            "without the sticky bit)"
        )
    return ""


@contextmanager
def make_private_folder() -> Iterator[str]:
    """Make a folder for temporary files that this user alone can read, write and replace; it goes with the context.

    Yields
    ------
    Its path, in TMPDIR or where the system has temporary files.

    Raises
    ------
    ConfigError
        If others could replace it.
    """
    if danger := find_temporary_danger():
        raise ConfigError(
            f"{danger}, who could have this process write into other files: set TMPDIR to a folder of your own"
        )
    with tempfile.TemporaryDirectory(prefix="pmf-", ignore_cleanup_errors=True) as folder:
        yield folder


@contextmanager
def call_regularly(function: Callable[[], None] | None, seconds: float) -> Iterator[None]:
    """Call a function from a thread of its own, every so many seconds, while the context lasts.

    The thread has the caller's context variables: who listens to the caller hears what the function reports.

    Parameters
    ----------
    function
        What to call; never after the context has ended. None calls nothing.
    seconds
        Time between calls, above 0.
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
    """Load SciPy's linear algebra at once where the address space is limited.

    Notes
    -----
    OpenBLAS asks for memory while it is loaded, and asks for ever where there is none: a run that came to need it late
    would hang, and neither end nor say why.
    """
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        import scipy.special  # noqa: F401
