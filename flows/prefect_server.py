"""Whether Prefect is configured to use a server: runs go through it then, and through nothing otherwise."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def is_server_configured() -> bool:
    """Whether Prefect is configured to use a server, in the environment or in its own files.

    Notes
    -----
    To import Prefect for its settings takes a second of processor time: this is done only where one of its files, or a
    chosen profile, could configure a server.
    """
    if os.environ.get("PREFECT_API_URL"):
        return True
    if "prefect" not in sys.modules and not _has_prefect_files():
        return False
    from prefect.settings import get_current_settings

    return bool(get_current_settings().api.url)


def _has_prefect_files() -> bool:
    if {"PREFECT_PROFILE", "PREFECT_PROFILES_PATH"} & os.environ.keys():
        return True
    home = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
    if any(path.exists() for path in (home / "profiles.toml", Path("prefect.toml"), Path(".env"))):
        return True
    project = Path("pyproject.toml")
    return project.exists() and b"tool.prefect" in project.read_bytes()
