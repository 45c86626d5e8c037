"""What all flows share: they are flows of Prefect where it has a server, and plain functions where it has none."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

from flows.prefect_server import is_server_configured
from flows.quick_imports import import_quickly

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
            from flows.prefect_flow import make_flow

        return make_flow(self.name, self.fn)


def pipeline_flow(name: str) -> Callable[[Callable[P, R]], PipelineFlow[P, R]]:
    """Make a function a flow. Its first parameter is the path of a pipeline configuration file."""
    return lambda function: PipelineFlow(name, function)
