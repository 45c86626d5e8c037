"""Whether a run is one of Prefect: a run at the command line without a server never imports Prefect."""

from __future__ import annotations

import sys
from typing import Any


def is_flow_run() -> bool:
    """Whether a flow run of Prefect is under way in this context."""
    if "prefect" not in sys.modules:
        return False
    from prefect.context import FlowRunContext

    return FlowRunContext.get() is not None


def find_flow_run_id() -> str | None:
    """Id of the flow run of Prefect that is under way; None outside one."""
    if not is_flow_run():
        return None
    from prefect.runtime import flow_run

    return str(flow_run.id)


def find_task_parameters() -> dict[str, Any] | None:
    """Parameters of the task run of Prefect that is under way; None outside one."""
    if "prefect" not in sys.modules:
        return None
    from prefect.context import TaskRunContext

    context = TaskRunContext.get()
    return None if context is None else dict(context.parameters)
