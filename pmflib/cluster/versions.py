"""Versions of packages: those installed here, and differences between processes that matter."""

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
"""Number of leading parts of a package's version that must agree for a run to work; 0 if differences are acceptable."""
OPTIONAL = ("obstore",)
"""Packages needed only by pipelines that use them."""
SAME_EVERYWHERE = "install the same lock file everywhere, then restart scheduler and workers"


@dataclass(frozen=True)
class Difference:
    """A version that differs from that of this process.

    Parameters
    ----------
    package
        Name of the package, or "python".
    ours, theirs
        Both versions; empty if not installed.
    is_breaking
        Whether runs fail with it.
    """

    package: str
    ours: str
    theirs: str
    is_breaking: bool

    def describe(self, where: str) -> str:
        """Describe where the version is installed and the effect of the difference."""
        theirs = self.theirs or "is not installed"
        effect = "results may differ in the last bits"
        if self.is_breaking:
            effect = "tasks, messages or arrays cannot be exchanged"
        return f"{self.package} {theirs} at {where}; here {self.ours or 'none'}: {effect}"


def find_versions() -> dict[str, str]:
    """Return the versions of Python and of ``AGREEING_PARTS`` without importing them; "" if not installed."""
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
    """List the relevant differences between the versions of two processes, in the order of ``AGREEING_PARTS``.

    Parameters
    ----------
    ours, theirs
        Versions of this process and of another, by package, from `find_versions`.
    packages
        Names of the packages to compare. An optional package missing from either is not a difference.
    """
    found = []
    for name, n_parts in AGREEING_PARTS.items():
        mine, other = ours.get(name, ""), theirs.get(name, "")
        if name not in packages or mine == other or (name in OPTIONAL and not (mine and other)):
            continue
        is_breaking = not other or mine.split(".")[:n_parts] != other.split(".")[:n_parts]
        # patch releases of Python are compatible
        if is_breaking or name != "python":
            found.append(Difference(name, mine, other, is_breaking))
    return found
