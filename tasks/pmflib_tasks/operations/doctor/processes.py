"""What a process has, and checks of it: versions, processors, memory, linear algebra, kernels, encodings."""

from __future__ import annotations

import locale
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pmflib.cluster.versions import SAME_EVERYWHERE, Difference, compare_versions, find_versions
from pmflib.core.machine import GROUP_FILES, MachineMemory, count_processors
from pmflib.kernels.readiness import KernelState
from pmflib_tasks.operations.doctor import HealthLine, fail, list_first, note, warn

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
class ProcessState:
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


def find_process_state() -> ProcessState:
    """Find out what this process has."""
    return ProcessState(
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


SCHEDULER_READS = ("python", "pmflib", "dask", "distributed", "numpy", "cloudpickle", "msgpack")
"""Packages that matter on a scheduler, which reads tasks and no data."""


def check_versions(
    ours: Mapping[str, str],
    scheduler: Mapping[str, str] | str | None,
    workers: Mapping[str, Mapping[str, str]],
    *,
    needs_obstore: bool = False,
) -> list[HealthLine]:
    """Compare versions with those of the client.

    Parameters
    ----------
    ours
        The client's, by package, empty for one that is not installed.
    scheduler
        The scheduler's; a text that says why it gave none; None without one.
    workers
        The workers', by address.
    needs_obstore
        Whether the pipeline has a store or sources in a bucket.

    Returns
    -------
    One line where all is alike; otherwise one for each package that differs.
    """
    lines = []
    differing: dict[Difference, list[str]] = {}
    unread: list[str] = []
    if isinstance(scheduler, str):
        lines.append(
            fail(
                "versions",
                f"the scheduler cannot say its own: {scheduler}",
                SAME_EVERYWHERE,
                "infrastructure",
            )
        )
    elif scheduler is not None:
        for difference in compare_versions(ours, scheduler, SCHEDULER_READS):
            differing.setdefault(difference, []).append("scheduler")
    for address, installed in workers.items():
        for difference in compare_versions(ours, installed):
            differing.setdefault(difference, []).append(address)
        if needs_obstore and not installed.get("obstore"):
            unread.append(address)
    for difference, where in differing.items():
        said = difference.describe(list_first(where))
        if difference.is_breaking:
            lines.append(fail("versions", said, SAME_EVERYWHERE, "infrastructure"))
        else:
            lines.append(warn("versions", said, SAME_EVERYWHERE))
    if unread:
        lines.append(
            fail(
                "versions",
                f"obstore is not installed at {list_first(unread)}: the bucket cannot be read there",
                "pip install 'pmflib[s3]' there",
                "infrastructure",
            )
        )
    if needs_obstore and not ours.get("obstore"):
        lines.append(
            fail(
                "versions",
                "obstore is not installed here",
                "pip install 'pmflib[s3]'",
                "configuration",
            )
        )
    if lines:
        return lines
    listed = [
        f"{name} {ours[name]}"
        for name in ("pmflib", "numpy", "numba", "distributed", "zarr", "pyarrow")
        if ours.get(name)
    ]
    everywhere = ""
    if scheduler is not None:
        counted = f"{len(workers)} worker{'' if len(workers) == 1 else 's'}"
        everywhere = f"; the same on client, scheduler and {counted}"
    return [note("versions", f"Python {ours['python']}, {', '.join(listed)}{everywhere}")]


def check_kernels(kernels: Mapping[str, KernelState | str]) -> list[HealthLine]:
    """Check which kernels processes use, and whether they keep compiled code.

    Parameters
    ----------
    kernels
        By process: "client", and addresses of workers; a text that says why nothing is known.

    Returns
    -------
    A line on instruction sets and vector code, and one on the folders of compiled code.
    """
    known = {name: each for name, each in kernels.items() if isinstance(each, KernelState)}
    silent = [f"{name} ({each})" for name, each in kernels.items() if isinstance(each, str)]
    plain = [name for name, each in known.items() if each.is_plain]
    broken = [name for name, each in known.items() if not (each.works or each.is_plain)]
    vectors = sorted({each.vectors or "no vectors" for each in known.values()})
    lines = []
    if silent:
        lines.append(
            warn(
                "kernels",
                f"nothing is known of {list_first(silent)}",
                "run again: what they compile is kept",
            )
        )
    if plain:
        lines.append(
            warn(
                "kernels",
                f"PMF_PLAIN_KERNELS is set for {list_first(plain)}: plain numba, slower; the same results",
                "unset it",
            )
        )
    if broken:
        lines.append(
            warn(
                "kernels",
                f"vector code fails at {list_first(broken)}: plain numba, slower; the same results",
                "install the numba of the lock file there",
            )
        )
    if not lines:
        mixed = "; they differ, which changes the speed and no result" if len(vectors) > 1 else ""
        lines.append(note("kernels", f"vector code for {', '.join(vectors)}{mixed}"))
    if unkept := [name for name, each in known.items() if not each.folder]:
        lines.append(
            warn(
                "kernel cache",
                f"no folder for compiled code at {list_first(unkept)}: every process compiles, for some seconds",
                "set NUMBA_CACHE_DIR to a folder that this user alone can write",
            )
        )
    elif known:
        folders = sorted({each.folder for each in known.values()})
        lines.append(note("kernel cache", f"compiled code is kept in {list_first(folders)}"))
    return lines


def check_text_encodings(processes: Mapping[str, ProcessState]) -> HealthLine:
    """Check that names of files and texts are UTF-8.

    Parameters
    ----------
    processes
        By process: "client", and addresses of workers.
    """
    odd = [
        f"{name} ({'/'.join(each.encoding)})"
        for name, each in processes.items()
        if any(code.lower().replace("-", "") != "utf8" for code in each.encoding)
    ]
    if odd:
        return warn(
            "encoding",
            f"not UTF-8: {list_first(odd)}; names of files with other letters are not found there",
            "set LANG=C.UTF-8, or PYTHONUTF8=1",
        )
    return note("encoding", "UTF-8")
