"""What a process has: versions, processors, memory, linear algebra, open files, encodings."""

from __future__ import annotations

import locale
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pmflib.running.memory_limits import GROUP_FILES, MachineMemory
from pmflib.running.processors import count_processors

PACKAGES = (
    "pmflib",
    "numpy",
    "scipy",
    "numba",
    "dask",
    "distributed",
    "zarr",
    "pyarrow",
    "obstore",
    "cloudpickle",
    "msgpack",
)
"""Packages whose versions are compared."""
QUOTA_FILES = ("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
"""Files in which Linux holds the share of processors of a control group, versions 2 and 1."""
_PERIOD_FILE = "/sys/fs/cgroup/cpu/cpu.cfs_period_us"


@dataclass(frozen=True)
class LinearAlgebra:
    """A library of linear algebra, or of threads, that a process has loaded.

    Parameters
    ----------
    name
        As threadpoolctl calls it: openblas, mkl, blis, openmp.
    version
        Its version; empty where it does not say.
    n_threads
        Threads that it works with.
    """

    name: str
    version: str
    n_threads: int


@dataclass(frozen=True)
class ProcessFacts:
    """What a process has.

    Parameters
    ----------
    host
        Name of its machine.
    versions
        Version of Python, as "python", and of ``PACKAGES``; empty for one that is not installed.
    processors
        Processors that it may use, at least 1.
    quota
        Processors' time that its container gives it, in processors; 0 for no limit.
    memory
        Memory of its machine, as plans take it.
    container_memory
        Bytes that its container may take; 0 for no limit.
    linear_algebra
        Libraries loaded.
    encoding
        Encoding of file names, and of files that are opened without one.
    open_files
        Most files that it may have open at a time; 0 where the system does not say.
    """

    host: str
    versions: dict[str, str]
    processors: int
    quota: float
    memory: MachineMemory
    container_memory: int
    linear_algebra: tuple[LinearAlgebra, ...]
    encoding: tuple[str, str]
    open_files: int


def find_process_facts() -> ProcessFacts:
    """Find out what this process has."""
    return ProcessFacts(
        host=platform.node(),
        versions=find_versions(),
        processors=count_processors(),
        quota=find_quota(),
        memory=MachineMemory.read(),
        container_memory=_find_container_limit(),
        linear_algebra=find_linear_algebra(),
        encoding=(sys.getfilesystemencoding(), locale.getpreferredencoding(False)),
        open_files=_find_open_files(),
    )


def find_versions() -> dict[str, str]:
    """Version of Python and of ``PACKAGES``; empty for one that is not installed. Nothing is imported for it."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found


def find_linear_algebra() -> tuple[LinearAlgebra, ...]:
    """Libraries of linear algebra of NumPy and SciPy, and their threads; none where threadpoolctl is not installed."""
    import scipy.linalg  # noqa: F401  # brings its own library

    try:
        from threadpoolctl import threadpool_info
    except ModuleNotFoundError:
        return ()
    found = {
        LinearAlgebra(
            each["internal_api"], str(each.get("version") or ""), int(each["num_threads"])
        )
        for each in threadpool_info()
    }
    return tuple(sorted(found, key=lambda each: (each.name, each.version, each.n_threads)))


def find_quota(files: tuple[str, str] = QUOTA_FILES) -> float:
    """Processors' time that the container of this process has, in processors; 0 for no limit.

    Parameters
    ----------
    files
        Where the limit is, versions 2 and 1.
    """
    for name in files:
        try:
            words = Path(name).read_text("ascii").split()
            period = words[1] if len(words) > 1 else Path(_PERIOD_FILE).read_text("ascii")
        except OSError:
            continue
        if words[0].isdecimal() and int(period) > 0:
            return int(words[0]) / int(period)
    return 0.0


def _find_container_limit() -> int:
    """Least limit of the control group on memory, bytes, where it is below what the machine has; otherwise 0."""
    import psutil

    total = psutil.virtual_memory().total
    limits = [total]
    for name in GROUP_FILES:
        try:
            text = Path(name).read_text("ascii").strip()
        except OSError:
            continue
        if text.isdecimal() and int(text) > 0:
            limits.append(int(text))
    return min(limits) if min(limits) < total else 0


def _find_open_files() -> int:
    if sys.platform == "win32":
        return 0
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 0 if soft == resource.RLIM_INFINITY else soft


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by a name or address that no other machine can reach."""
    name = host.strip("[]").lower()
    return name in ("localhost", "::1") or name.startswith("127.")
