"""Versions of packages: what a process has installed, and which differences between two processes matter."""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

WHOLE = 9
"""More parts than any version has."""
AGREEING_PARTS = {
    "python": 2,
    "pmflib": WHOLE,
    "dask": WHOLE,
    "distributed": WHOLE,
    "numpy": 1,
    "scipy": 0,
    "numba": 0,
    "zarr": 1,
    "pyarrow": 0,
    "obstore": 0,
    "cloudpickle": 0,
    "msgpack": 1,
}
"""Leading parts of a package's version that must be equal for a run to work; 0 where no difference stops one."""
OPTIONAL = ("obstore",)
"""Packages that are needed only by pipelines that use them."""
SAME_EVERYWHERE = "install the same lock file everywhere, then restart scheduler and workers"


@dataclass(frozen=True)
class Difference:
    """A version that differs from this process's.

    Parameters
    ----------
    package
        Name of the package, or "python".
    ours, theirs
        Both versions; empty where it is not installed.
    is_breaking
        Whether a run cannot work with it.
    """

    package: str
    ours: str
    theirs: str
    is_breaking: bool

    def describe(self, where: str) -> str:
        """Say what is installed where, and what the difference means."""
        theirs = self.theirs or "is not installed"
        effect = "results may differ in the last bits"
        if self.is_breaking:
            effect = "tasks, messages or arrays cannot be exchanged"
        return f"{self.package} {theirs} at {where}; here {self.ours or 'none'}: {effect}"


def find_versions() -> dict[str, str]:
    """Versions of Python and of the packages of ``AGREEING_PARTS``, without importing them; "" if not installed."""
    found = {}
    for name in AGREEING_PARTS:
        try:
            found[name] = platform.python_version() if name == "python" else version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found


def compare_versions(
    ours: Mapping[str, str],
    theirs: Mapping[str, str],
    packages: Collection[str] = (*AGREEING_PARTS,),
) -> list[Difference]:
    """Differences that matter between the versions of two processes, in the order of ``AGREEING_PARTS``.

    Parameters
    ----------
    ours, theirs
        Versions of this process and of another, by package, as `find_versions` gives them.
    packages
        Names of those to compare. An optional package that either lacks makes no difference.
    """
    found = []
    for name, n_parts in AGREEING_PARTS.items():
        mine, other = ours.get(name, ""), theirs.get(name, "")
        if name not in packages or mine == other or (name in OPTIONAL and not (mine and other)):
            continue
        is_breaking = not other or mine.split(".")[:n_parts] != other.split(".")[:n_parts]
        # patch releases of Python change nothing
        if is_breaking or name != "python":
            found.append(Difference(name, mine, other, is_breaking))
    return found
