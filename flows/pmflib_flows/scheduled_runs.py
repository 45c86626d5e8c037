"""Names of flow runs before they start: Prefect's scheduler gives them names of animals, and a flow names only its own.

Whoever deploys names what is scheduled by then (``python -m pmflib_flows.scheduled_runs``), and each run what is
scheduled after it, so that no run waits for its time without a name that says what it is.
"""

from __future__ import annotations

import sys
import time
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
WAIT_SECONDS = 30.0
"""How long to wait for the scheduler, which looks for new deployments every few seconds."""


def name_pipeline(path: str) -> str:
    """Name of the pipeline of a configuration file; of one that does not read, the file's."""
    with suppress(Exception):
        return load_config(path).name
    return Path(path).stem or "unnamed"


def name_scheduled_runs(client: SyncPrefectClient) -> list[str]:
    """Name the runs that are scheduled after their deployment, pipeline and time; names of all that are scheduled.

    Parameters
    ----------
    client
        Client of the server. Runs of deployments without the tag ``pmf`` are left alone.
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
    """Name what is scheduled on the server of the flow run under way: names are no reason for it to fail."""
    with suppress(Exception), get_client(sync_client=True) as client:
        name_scheduled_runs(client)


def main() -> None:
    """Name the runs of new deployments as soon as the scheduler has seen them, and print the names."""
    with get_client(sync_client=True) as client:
        deadline = time.monotonic() + WAIT_SECONDS
        while not (names := name_scheduled_runs(client)) and time.monotonic() < deadline:
            time.sleep(1.0)
    for name in names:
        sys.stdout.write(f"scheduled: {name}\n")


if __name__ == "__main__":
    main()
