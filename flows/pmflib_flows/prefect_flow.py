"""Prefect flows: names of runs, logging, and the state of runs stopped by a quality check."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar, cast

from prefect import Flow, flow
from prefect.runtime import flow_run
from prefect.states import Failed

from pmflib.base.errors import QualityError
from pmflib_flows.run_log import log_progress
from pmflib_flows.scheduled_runs import name_next_runs, name_pipeline
from pmflib_tasks.config import load_config
from pmflib_tasks.prefect_runs import is_flow_run

P = ParamSpec("P")
R = TypeVar("R")

HELD_BACK = "HeldBack"
"""Name of the state, of type FAILED, of a run stopped by a quality check. Automations can wait for it."""


def name_run() -> str:
    """Name a flow run after its pipeline and the digest of its configuration, or after the file if it is invalid."""
    path = str(flow_run.parameters.get("config", ""))
    try:
        config = load_config(path)
    except Exception:
        # the flow meets and reports the same error; raised here, it would be a crash without a name
        return name_pipeline(path)
    return f"{config.name}-{config.digest[:8]}"


def make_flow(name: str, function: Callable[P, R]) -> Flow[P, R]:
    """Turn a function into a Prefect flow. Its first parameter is the path of a pipeline configuration file."""

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
                # the caller of the flow still gets the error
                return cast(R, Failed(name=HELD_BACK, message=str(error), data=error))

    return flow(name=name, flow_run_name=name_run)(run)
