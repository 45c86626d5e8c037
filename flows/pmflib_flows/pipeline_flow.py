"""Base of all flows: Prefect flows if a server is configured, otherwise plain functions."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    from prefect import Flow

P = ParamSpec("P")
R = TypeVar("R")


class PipelineFlow(Generic[P, R]):
    """A run of stages, given the path of a pipeline configuration file.

    Parameters
    ----------
    name
        Name of the flow.
    function
        Function to run; its first parameter is the path of a pipeline configuration file.

    Attributes
    ----------
    fn
        The function, for a run in this process only.

    Notes
    -----
    Importing Prefect and starting a server for one run would take longer than a small pipeline, so without a server the
    function is called directly. The history of the pipeline is in its store in either case.
    """

    def __init__(self, name: str, function: Callable[P, R]) -> None:
        self.name, self.fn = name, function
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run by Prefect if a server is configured, otherwise in this process."""
        return self.flow(*args, **kwargs) if is_server_configured() else self.fn(*args, **kwargs)

    @cached_property
    def flow(self) -> Flow[P, R]:
        """Return the Prefect flow."""
        with import_quickly():
            from pmflib_flows.prefect_flow import make_flow

        return make_flow(self.name, self.fn)


def pipeline_flow(name: str) -> Callable[[Callable[P, R]], PipelineFlow[P, R]]:
    """Turn a function into a flow. Its first parameter is the path of a pipeline configuration file."""
    return lambda function: PipelineFlow(name, function)


def is_server_configured() -> bool:
    """Return whether Prefect is configured to use a server, by the environment or its own files.

    Notes
    -----
    Importing Prefect to read its settings takes a second, so this is done only if one of its files, or a selected
    profile, could configure a server.
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


class _NoPandas:
    """Finder of modules that finds no pandas."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
        """Refuse pandas, and leave other modules to other finders."""
        if name == "pandas":
            raise ImportError(name)


def spare_pandas() -> None:
    """Keep pyarrow from importing pandas, if installed, when it makes its first array.

    pyarrow would check whether the values come from pandas, whose import takes half as long as all other imports of a
    run. It still imports pandas when a table is converted to a data frame.
    """
    import pyarrow

    finder: Any = _NoPandas
    sys.meta_path.insert(0, finder)
    try:
        pyarrow.array([0])
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def import_quickly() -> Iterator[None]:
    """Disable garbage collection within the context, which makes importing Prefect a seventh faster."""
    gc.disable()
    try:
        yield
    finally:
        # imported objects are exempt from later collections
        gc.freeze()
        gc.enable()
