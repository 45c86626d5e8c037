"""Name the runs that the server has scheduled, after ``prefect deploy``: as soon as its scheduler has seen them."""

import sys
import time

from prefect.client.orchestration import get_client

from pmflib_flows.scheduled_runs import name_scheduled_runs

WAIT_SECONDS = 30.0
"""How long to wait for the scheduler, which looks for new deployments every few seconds."""

with get_client(sync_client=True) as client:
    deadline = time.monotonic() + WAIT_SECONDS
    while not (names := name_scheduled_runs(client)) and time.monotonic() < deadline:
        time.sleep(1.0)
for name in names:
    sys.stdout.write(f"scheduled: {name}\n")
