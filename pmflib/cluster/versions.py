"""Versions of packages: what a process has installed, and what a difference from this one breaks."""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version


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
    effect
        What it breaks, or may change.
    """

    package: str
    ours: str
    theirs: str
    is_breaking: bool
    effect: str

    def describe(self, where: str) -> str:
        """Say where what is installed, and what that breaks."""
        theirs = self.theirs or "is not installed"
        return f"{self.package} {theirs} at {where}; here {self.ours or 'none'}: {self.effect}"


def find_versions() -> dict[str, str]:
    """Version of Python and of the packages of ``AGREEMENTS``; empty for one that is not installed.

    Nothing is imported for it.
    """
    found = {"python": platform.python_version()}
    for name in AGREEMENTS:
        if name == "python":
            continue
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found


def compare_versions(
    ours: Mapping[str, str], theirs: Mapping[str, str], packages: Collection[str] = (*AGREEMENTS,)
) -> list[Difference]:
    """Differences that matter between the versions of two processes, in the order of ``AGREEMENTS``.

    Parameters
    ----------
    ours, theirs
        Versions of this process and of another, by package, as `find_versions` gives them.
    packages
        Names of those to compare. What is optional, and lacking in either, is no difference here.
    """
    found = []
    for name, rule in AGREEMENTS.items():
        mine, other = ours.get(name, ""), theirs.get(name, "")
        if name not in packages or mine == other or (name in OPTIONAL and not (mine and other)):
            continue
        if not other or mine.split(".")[: rule.parts] != other.split(".")[: rule.parts]:
            effect = rule.breaks or "it is needed there"
            found.append(Difference(name, mine, other, True, effect))
        elif rule.differs:
            found.append(Difference(name, mine, other, False, rule.differs))
    return found
