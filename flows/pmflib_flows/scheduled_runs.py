"""Names for scheduled flow runs, which Prefect would name after animals until they start.

The worker of the deployments (``deploy/start_worker.py``) names what is scheduled every few seconds, and each run names
those scheduled after it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterTags,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType

from pmflib_tasks.config import load_config

TAG = "pmf"
"""Tag of the deployments of this package."""


def name_pipeline(path: str) -> str:
    """Return the name of the pipeline in a configuration file, or the name of the file if it is invalid."""
    with suppress(Exception):
        return load_config(path).name
    return Path(path).stem or "unnamed"


def name_scheduled_runs(client: SyncPrefectClient) -> list[str]:
    """Name scheduled runs after their deployment, pipeline and time; returns the names of all scheduled runs.

    Parameters
    ----------
    client
        Client of the server. Runs of deployments without the tag ``pmf`` are skipped.
    """
    deployments = {
        each.id: each.name
        for each in client.read_deployments(
            deployment_filter=DeploymentFilter(tags=DeploymentFilterTags(all_=[TAG]))
        )
    }
    scheduled = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED]))
    )
    names = []
    for run in client.read_flow_runs(flow_run_filter=scheduled):
        start: Any = run.expected_start_time
        if run.deployment_id not in deployments or start is None:
            continue
        pipeline = name_pipeline(str(run.parameters.get("config", "")))
        name = f"{deployments[run.deployment_id]}-{pipeline}-{start:%Y-%m-%d-%H%M}"
        if run.name != name:
            client.set_flow_run_name(run.id, name)
        names.append(name)
    return sorted(names)


def name_next_runs() -> None:
    """Name the runs scheduled on the server of the current flow run; errors are ignored."""
    with suppress(Exception), get_client(sync_client=True) as client:
        name_scheduled_runs(client)
