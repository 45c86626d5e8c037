"""Flows of Prefect: their runs' names, their log, and the state of a run that was held back."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar, cast

from prefect import Flow, flow
from prefect.runtime import flow_run
from prefect.states import Failed

from pmflib.core.errors import QualityError
from pmflib_flows.run_log import log_progress
from pmflib_flows.scheduled_runs import name_next_runs, name_pipeline
from pmflib_tasks.config import load_config
from pmflib_tasks.prefect_runs import is_flow_run

P = ParamSpec("P")
R = TypeVar("R")

HELD_BACK = "HeldBack"
"""Name of the state of a run that a guard of quality held back; its type is FAILED. Automations wait for it."""


def name_run() -> str:
    """Name a flow run after its pipeline and the digest of its configuration; of one that does not read, the file."""
    path = str(flow_run.parameters.get("config", ""))
    try:
        config = load_config(path)
    except Exception:
        # the flow meets the same error, and says what is wrong; raised here, it would be a crash without a name
        return name_pipeline(path)
    return f"{config.name}-{config.digest[:8]}"


def make_flow(name: str, function: Callable[P, R]) -> Flow[P, R]:
    """Make a function a Prefect flow. Its first parameter is the path of a pipeline configuration file."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with log_progress():
            if is_flow_run():
                name_next_runs()
            try:
                return function(*args, **kwargs)
            except QualityError as error:
                if not is_flow_run():
                    raise
                # who called the flow gets the error all the same
                return cast(R, Failed(name=HELD_BACK, message=str(error), data=error))

    return flow(name=name, flow_run_name=name_run)(run)
