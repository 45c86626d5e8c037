"""What all flows share: they are flows of Prefect where it has a server, and plain functions where it has none."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    from prefect import Flow

P = ParamSpec("P")
R = TypeVar("R")


class PipelineFlow(Generic[P, R]):
    """A run of stages, from the path of a pipeline configuration file on.

    Parameters
    ----------
    name
        Name of the flow.
    function
        What it does; its first parameter is the path of a pipeline configuration file.

    Attributes
    ----------
    fn
        The function, for a run in this process alone.

    Notes
    -----
    Importing Prefect, and starting a server for one run, would take longer than a small pipeline: without a server the
    function is called as it is. The history of the pipeline is in its store either way.
    """

    def __init__(self, name: str, function: Callable[P, R]) -> None:
        self.name, self.fn = name, function
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run: by Prefect where a server is configured, or else in this process alone."""
        return self.flow(*args, **kwargs) if is_server_configured() else self.fn(*args, **kwargs)

    @cached_property
    def flow(self) -> Flow[P, R]:
        """The flow of Prefect."""
        with import_quickly():
            from pmflib_flows.prefect_flow import make_flow

        return make_flow(self.name, self.fn)


def pipeline_flow(name: str) -> Callable[[Callable[P, R]], PipelineFlow[P, R]]:
    """Make a function a flow. Its first parameter is the path of a pipeline configuration file."""
    return lambda function: PipelineFlow(name, function)


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


@contextmanager
def import_quickly() -> Iterator[None]:
    """Collect no garbage while the context lasts: imports of Prefect take a seventh less processor time."""
    gc.disable()
    try:
        yield
    finally:
        # what has been imported is never looked at again
        gc.freeze()
        gc.enable()
