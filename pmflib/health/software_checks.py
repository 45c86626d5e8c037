"""Checks of what is installed: versions on client, scheduler and workers, kernels, encodings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pmflib.health.health_line import HealthLine, fail, list_some, note, warn
from pmflib.health.process_facts import ProcessFacts
from pmflib.kernels.kernel_facts import KernelFacts

SAME_EVERYWHERE = "install the same lock file everywhere, then restart scheduler and workers"


@dataclass(frozen=True)
class Agreement:
    """How alike the versions of a package must be.

    Parameters
    ----------
    parts
        Leading parts of the version that must be equal for a run to work; 0 where no difference stops one.
    breaks
        What a difference in these parts breaks.
    differs
        What a smaller difference may change; empty where it changes nothing.
    """

    parts: int
    breaks: str
    differs: str


LAST_BITS = "results may differ in the last bits"
WHOLE = 9
"""More parts than any version has."""

AGREEMENTS: dict[str, Agreement] = {
    "python": Agreement(2, "functions and data that are sent do not read", ""),
    "pmflib": Agreement(WHOLE, "workers compute by other code than the run records", ""),
    "dask": Agreement(WHOLE, "tasks do not read", ""),
    "distributed": Agreement(WHOLE, "messages do not read", ""),
    "numpy": Agreement(1, "arrays that are sent do not read", LAST_BITS),
    "scipy": Agreement(0, "", LAST_BITS),
    "numba": Agreement(0, "", LAST_BITS),
    "zarr": Agreement(
        1, "arrays of the store do not read", "arrays may be written with other bytes"
    ),
    "pyarrow": Agreement(0, "", "values of CSV and Parquet files may be read otherwise"),
    "obstore": Agreement(0, "", "a bucket may be written otherwise"),
    "cloudpickle": Agreement(0, "", "functions that are sent may not read"),
    "msgpack": Agreement(1, "messages do not read", "messages may not read"),
}
"""What a difference between the client and another process breaks, by package."""

SCHEDULER_READS = ("python", "pmflib", "dask", "distributed", "numpy", "cloudpickle", "msgpack")
"""Packages that matter on a scheduler, which reads tasks and no data."""
OPTIONAL = ("obstore",)
"""Packages that are needed only by pipelines that use them."""


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
    seen: dict[str, dict[str, list[str]]] = {}
    for address, theirs in workers.items():
        for name in AGREEMENTS:
            seen.setdefault(name, {}).setdefault(theirs.get(name, ""), []).append(address)
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
        for name in SCHEDULER_READS:
            seen.setdefault(name, {}).setdefault(scheduler.get(name, ""), []).insert(0, "scheduler")
    for name, by_version in seen.items():
        for version, where in by_version.items():
            if version == ours.get(name, ""):
                continue
            lines += _check_difference(name, ours.get(name, ""), version, where, needs_obstore)
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
    everywhere = (
        ""
        if scheduler is None
        else f"; the same on client, scheduler and {_count(workers, 'worker')}"
    )
    return [note("versions", f"Python {ours['python']}, {', '.join(listed)}{everywhere}")]


def _check_difference(
    name: str, ours: str, theirs: str, where: list[str], needs_obstore: bool
) -> list[HealthLine]:
    shown = f"{name} {theirs or 'is not installed'} at {list_some(where)}; here {ours or 'none'}"
    if name in OPTIONAL and not (ours and theirs):
        if not needs_obstore or theirs:
            return []
        return [
            fail(
                "versions",
                f"{shown}: the bucket cannot be read there",
                "pip install 'pmflib[s3]' there",
                "infrastructure",
            )
        ]
    rule = AGREEMENTS[name]
    if not theirs or _cut(ours, rule.parts) != _cut(theirs, rule.parts):
        return [
            fail(
                "versions",
                f"{shown}: {rule.breaks or 'it is needed there'}",
                SAME_EVERYWHERE,
                "infrastructure",
            )
        ]
    return [warn("versions", f"{shown}: {rule.differs}", SAME_EVERYWHERE)] if rule.differs else []


def _cut(version: str, parts: int) -> list[str]:
    return version.split(".")[:parts]


def check_kernels(kernels: Mapping[str, KernelFacts | str]) -> list[HealthLine]:
    """Check which kernels processes use, and whether they keep compiled code.

    Parameters
    ----------
    kernels
        By process: "client", and addresses of workers; a text that says why nothing is known.

    Returns
    -------
    A line on instruction sets and vector code, and one on the folders of compiled code.
    """
    known = {name: each for name, each in kernels.items() if isinstance(each, KernelFacts)}
    silent = [f"{name} ({each})" for name, each in kernels.items() if isinstance(each, str)]
    plain = [name for name, each in known.items() if each.is_plain]
    broken = [name for name, each in known.items() if not (each.works or each.is_plain)]
    vectors = sorted({each.vectors or "no vectors" for each in known.values()})
    lines = []
    if silent:
        lines.append(
            warn(
                "kernels",
                f"nothing is known of {list_some(silent)}",
                "run again: what they compile is kept",
            )
        )
    if plain:
        lines.append(
            warn(
                "kernels",
                f"PMF_PLAIN_KERNELS is set for {list_some(plain)}: plain numba, slower; the same results",
                "unset it",
            )
        )
    if broken:
        lines.append(
            warn(
                "kernels",
                f"vector code fails at {list_some(broken)}: plain numba, slower; the same results",
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
                f"no folder for compiled code at {list_some(unkept)}: every process compiles, for some seconds",
                "set NUMBA_CACHE_DIR to a folder that this user alone can write",
            )
        )
    elif known:
        folders = sorted({each.folder for each in known.values()})
        lines.append(note("kernel cache", f"compiled code is kept in {list_some(folders)}"))
    return lines


def check_encodings(processes: Mapping[str, ProcessFacts]) -> HealthLine:
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
            f"not UTF-8: {list_some(odd)}; names of files with other letters are not found there",
            "set LANG=C.UTF-8, or PYTHONUTF8=1",
        )
    return note("encoding", "UTF-8")


def _count(items: Mapping[str, object], word: str) -> str:
    return f"{len(items)} {word}" + ("" if len(items) == 1 else "s")
