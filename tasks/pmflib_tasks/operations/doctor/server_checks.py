"""Checks of a Prefect server: whether it answers, its version, its database, who would run this pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pmflib_tasks.operations.doctor import HealthLine, fail, list_first, note, warn
from pmflib_tasks.operations.doctor.processes import is_loopback


@dataclass(frozen=True)
class DeploymentState:
    """A deployment that runs this pipeline.

    Parameters
    ----------
    name
        Flow and deployment, as "etl/nightly".
    paused
        Whether it is paused.
    schedules
        Its schedules that are on, as texts.
    pool
        Its work pool; empty where a process serves it.
    pool_error
        Why nothing would be started from that pool, apart from its workers: it is paused, or gone; empty otherwise.
    n_polling
        Workers of Prefect that poll the pool; where a process serves the deployment, 1 if it does.
    """

    name: str
    paused: bool
    schedules: tuple[str, ...]
    pool: str
    pool_error: str
    n_polling: int


@dataclass(frozen=True)
class ServerState:
    """A Prefect server.

    Parameters
    ----------
    url
        Its address, without secrets.
    error
        Why it does not answer; empty where it does.
    version, client_version
        Its version, and that of the client.
    database
        "sqlite" or "postgresql"; empty where nothing says so.
    skew
        How far its clock is ahead of the client's, seconds; None where it does not say.
    deployments
        Those that run this pipeline.
    n_others
        Number of deployments of the same flows with other pipelines.
    """

    url: str
    error: str = ""
    version: str = ""
    client_version: str = ""
    database: str = ""
    skew: float | None = None
    deployments: tuple[DeploymentState, ...] = field(default=())
    n_others: int = 0


def check_server(server: ServerState | None) -> list[HealthLine]:
    """Check a Prefect server.

    Parameters
    ----------
    server
        The server; None where none is configured.
    """
    if server is None:
        return [
            note(
                "Prefect", "no server is configured: runs go through none, and nothing is scheduled"
            )
        ]
    if server.error:
        return [
            fail(
                "Prefect",
                f"{server.url} does not answer: {server.error}",
                "start it, correct PREFECT_API_URL (and PREFECT_API_AUTH_STRING), or unset it to run without a server",
                "infrastructure",
            )
        ]
    lines = [_check_version(server), *_check_address(server), _check_database(server)]
    return lines + _check_deployments(server.deployments, server.n_others)


def _check_version(server: ServerState) -> HealthLine:
    said = f"{server.url} answers, version {server.version}"
    if server.version == server.client_version:
        return note("Prefect", said)
    said += f"; the client has {server.client_version}"
    ours, theirs = server.client_version.split("."), server.version.split(".")
    remedy = "install the same version for both; the server first"
    if ours[:1] != theirs[:1]:
        return fail(
            "Prefect", f"{said}: they do not understand each other", remedy, "infrastructure"
        )
    return warn(
        "Prefect", f"{said}: a newer client may ask for what an older server has not", remedy
    )


def _check_address(server: ServerState) -> list[HealthLine]:
    parts = urlsplit(server.url)
    if parts.scheme == "https" or is_loopback(parts.hostname or ""):
        return []
    return [
        warn(
            "Prefect address",
            f"{server.url} is not encrypted: passwords and parameters of runs can be read on the way",
            "put it behind HTTPS, or in a closed network",
        )
    ]


def _check_database(server: ServerState) -> HealthLine:
    if server.database == "sqlite":
        return note(
            "Prefect database",
            "SQLite: for one machine and a handful of runs at a time; PostgreSQL for more",
        )
    if server.database == "postgresql":
        return note("Prefect database", "PostgreSQL")
    return note("Prefect database", "the server does not say which")


def _check_deployments(deployments: Sequence[DeploymentState], n_others: int) -> list[HealthLine]:
    if not deployments:
        others = f"; {n_others} run other pipelines" if n_others else ""
        return [
            warn(
                "deployment",
                f"none runs this pipeline{others}: it runs only by hand",
                "set PMF_CONFIG to it, then prefect deploy --prefect-file deploy/prefect.yaml --all",
            )
        ]
    lines = []
    paused = [each.name for each in deployments if each.paused]
    if paused:
        lines.append(
            warn(
                "deployment",
                f"paused: {list_first(paused)}",
                "prefect deployment schedule resume, or the page of the server",
            )
        )
    names = [each.name for each in deployments]
    lines.append(note("deployment", list_first(names)))
    scheduled = [f"{each.name} {schedule}" for each in deployments for schedule in each.schedules]
    if scheduled:
        lines.append(note("schedule", list_first(scheduled)))
    else:
        lines.append(
            warn(
                "schedule",
                f"none for {list_first(names)}: nothing starts by itself",
                "give the deployment a schedule: deploy/prefect.yaml",
            )
        )
    return lines + _check_pools(deployments)


def _check_pools(deployments: Sequence[DeploymentState]) -> list[HealthLine]:
    lines = []
    for pool in dict.fromkeys(each.pool for each in deployments):
        mine = [each for each in deployments if each.pool == pool]
        error, n_polling = mine[0].pool_error, max(each.n_polling for each in mine)
        if error:
            lines.append(
                warn(
                    "work pool",
                    f"{pool!r} {error}: no run starts",
                    f"prefect work-pool resume {pool}, or create it",
                )
            )
        elif n_polling == 0 and pool:
            lines.append(
                warn(
                    "work pool",
                    f"no worker polls {pool!r}: runs stay late",
                    f"prefect worker start --pool {pool}",
                )
            )
        elif n_polling == 0:
            names = list_first([each.name for each in mine])
            lines.append(
                warn(
                    "work pool",
                    f"no process serves {names}: runs stay late",
                    "start the process that serves it",
                )
            )
        else:
            polled = (
                f"{pool!r} is polled by {n_polling} worker{'' if n_polling == 1 else 's'}"
                if pool
                else "a process serves it"
            )
            lines.append(note("work pool", polled))
    return lines
