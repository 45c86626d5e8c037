"""The software with which a run was made: packages, their versions, and the commit of a checkout."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("pmflib", "numpy", "scipy", "numba", "zarr", "pyarrow", "dask", "prefect")
"""Packages whose versions are recorded."""


def describe_environment() -> dict[str, str]:
    """Host, Python, versions of ``PACKAGES`` and, in a checkout, the commit."""
    commit = _find_commit()
    return {
        "host": platform.node(),
        "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
        **({"commit": commit} if commit else {}),
    }


def _find_commit() -> str:
    """Commit of the checkout that pmflib runs from, with "-dirty" if files were changed; "" if there is none."""
    root = Path(__file__).parents[2]
    # an installed package may lie inside the checkout of another project
    if not (root / ".git").exists():
        return ""
    words = [
        "git",
        "-C",
        str(root),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=40",
        "--exclude=*",
    ]
    try:
        found = subprocess.run(words, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        # no git, or a checkout of another user
        return ""
    return found.stdout.strip()
