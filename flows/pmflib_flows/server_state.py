"""What a Prefect server says of itself, and of the deployments of a pipeline."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pmflib.core.texts import mask_secrets
from pmflib_flows.pipeline_flow import import_quickly, is_server_configured
from pmflib_tasks.operations.doctor.processes import is_loopback
from pmflib_tasks.operations.doctor.server_checks import DeploymentState, ServerState

REQUEST_SECONDS = 5.0
"""Longest wait for an answer of the server."""
RUNS = ("etl", "crowd")
"""Flows that run a pipeline; others look after its store."""
MOST_DEPLOYMENTS = 200
"""Most deployments that are read: the limit of a server that is set up as usual."""


def find_server_state(config_file: Path) -> ServerState | None:
    """Ask the Prefect server that this process is configured to use; None where there is none.

    Parameters
    ----------
    config_file
        Configuration of the pipeline, ``pipeline.toml``.
    """
    if not is_server_configured():
        return None
    with import_quickly():
        import prefect
        from prefect.client.orchestration import get_client
        from prefect.settings import get_current_settings

    url = get_current_settings().api.url
    if not url:
        # a client without an address would start a server of its own
        return None
    shown = mask_secrets(url)
    try:
        settings = {"timeout": REQUEST_SECONDS}
        with get_client(sync_client=True, httpx_settings=settings) as client:
            before = time.time()
            health = client.request("GET", "/health")
            middle = (before + time.time()) / 2
            deployments = client.read_deployments(limit=MOST_DEPLOYMENTS)
            named = [(each, client.read_flow(each.flow_id).name) for each in deployments]
            runs = [(each, name) for each, name in named if name in RUNS]
            mine = [each for each in runs if _is_of(each[0], config_file)]
            return ServerState(
                url=shown,
                version=str(client.request("GET", "/admin/version").json()),
                client_version=prefect.__version__,
                database=find_database(client.request("GET", "/admin/settings").json(), url),
                skew=_read_skew(health.headers.get("date"), middle),
                deployments=tuple(
                    _describe(client, each, f"{name}/{each.name}") for each, name in mine
                ),
                n_others=len(runs) - len(mine),
            )
    except Exception as error:
        # no connection, no such server, a password that is asked for, an answer of another version
        said = str(error).splitlines() or [""]
        return ServerState(shown, mask_secrets(f"{type(error).__name__}: {said[0]}"))


def find_database(settings: Mapping[str, Any], url: str) -> str:
    """Which database a server uses: "sqlite", "postgresql", or "" where nothing says so.

    Parameters
    ----------
    settings
        Settings as the server gives them, in which the address of the database is hidden.
    url
        Address of the server.
    """
    server: Mapping[str, Any] = settings.get("server") or {}
    driver = (server.get("database") or {}).get("driver") or ""
    if not driver and is_loopback(urlsplit(url).hostname or ""):
        # a server on this machine, which is mostly started from the same environment; the name of the driver alone
        names = ("PREFECT_SERVER_DATABASE_CONNECTION_URL", "PREFECT_API_DATABASE_CONNECTION_URL")
        given = next((os.environ[name] for name in names if os.environ.get(name)), "")
        driver = given.partition(":")[0]
        # while SQLite is in use, its log of changes is beside its file
        if not driver and Path(settings.get("home") or "", "prefect.db-wal").exists():
            driver = "sqlite"
    return driver.partition("+")[0]


def _read_skew(date: str | None, middle: float) -> float | None:
    # the time that a server gives is that of the last whole second
    return None if date is None else parsedate_to_datetime(date).timestamp() + 0.5 - middle


def _is_of(deployment: Any, config_file: Path) -> bool:
    given = (deployment.parameters or {}).get("config")
    if not isinstance(given, str):
        return False
    return Path(deployment.path or "", given).resolve() == config_file.resolve()


def _describe(client: Any, deployment: Any, name: str) -> DeploymentState:
    pool, error, n_polling = deployment.work_pool_name or "", "", 0
    if pool:
        error, n_polling = _look_at_pool(client, pool)
    elif deployment.status is not None and deployment.status.value == "READY":
        n_polling = 1
    schedules = tuple(_name_schedule(each.schedule) for each in deployment.schedules if each.active)
    return DeploymentState(name, bool(deployment.paused), schedules, pool, error, n_polling)


def _look_at_pool(client: Any, pool: str) -> tuple[str, int]:
    """Why nothing would be started from a work pool, and the workers that poll it."""
    from prefect.exceptions import ObjectNotFound

    try:
        found = client.read_work_pool(pool)
    except ObjectNotFound:
        return "is not there", 0
    if found.type.endswith((":push", ":managed")):
        # the server starts runs itself
        return "is paused" if found.is_paused else "", 1
    workers = client.read_workers_for_work_pool(pool)
    n_polling = sum(each.status is not None and each.status.value == "ONLINE" for each in workers)
    return "is paused" if found.is_paused else "", n_polling


def _name_schedule(schedule: Any) -> str:
    for field in ("cron", "interval", "rrule"):
        if (given := getattr(schedule, field, None)) is not None:
            zone = getattr(schedule, "timezone", None)
            return f"{field} {given}" + (f" {zone}" if zone else "")
    return type(schedule).__name__
