"""Checks of a Dask cluster: scheduler, workers, ports, connections between them, encryption, clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pmflib.health.certificate_dates import CertificateFacts
from pmflib.health.health_line import HealthLine, fail, list_some, note, warn

MAX_SKEW = 10.0
"""Seconds by which clocks may differ before it is worth a line: a machine that is busy may say its time some late."""
SOON_DAYS = 30.0
"""Days before its end at which a certificate should be renewed."""


def check_scheduler(address: str, error: str) -> HealthLine:
    """Check that a scheduler answers.

    Parameters
    ----------
    address
        Its address.
    error
        Why it does not answer; empty where it does.
    """
    if error:
        return fail(
            "scheduler",
            f"{address} does not answer: {error}",
            "start it, open its port, or correct PMF_DASK_ADDRESS and cluster.address",
            "infrastructure",
        )
    return note("scheduler", f"{address} answers")


def check_workers(
    address: str, states: Mapping[str, str], silent: Mapping[str, str]
) -> list[HealthLine]:
    """Check that there are workers, and that they work.

    Parameters
    ----------
    address
        Address of the scheduler.
    states
        What the scheduler says of each, by address: "running", "paused", ...
    silent
        Why a worker did not say what it sees, by address.
    """
    if not states:
        return [
            fail(
                "workers",
                f"0 workers at {address}: a run would wait for them",
                f"start some: dask worker {address}",
                "infrastructure",
            )
        ]
    lines = []
    if silent:
        reasons = [f"{name} ({why})" for name, why in silent.items()]
        lines.append(
            fail(
                "workers",
                f"{len(silent)} of {len(states)} cannot say what they see: {list_some(reasons)}",
                "install pmflib there from the same lock file, or restart them",
                "infrastructure",
            )
        )
    if idle := [f"{name} ({state})" for name, state in states.items() if state != "running"]:
        lines.append(
            warn(
                "workers",
                f"not running: {list_some(idle)}",
                "see their logs; paused ones have too little memory",
            )
        )
    return lines or [note("workers", f"{len(states)}, all running")]


def check_connections(unfetched: Mapping[str, str], n_asked: int) -> list[HealthLine]:
    """Check that workers fetch results from each other.

    Parameters
    ----------
    unfetched
        What went wrong, by "one from another".
    n_asked
        Number of workers that were asked to.
    """
    if unfetched:
        said = [f"{pair} ({why})" for pair, why in unfetched.items()]
        return [
            fail(
                "connections",
                f"{len(unfetched)} of {n_asked} workers cannot fetch from the next: {list_some(said)}",
                "open the workers' ports to each other; fix them by dask worker --worker-port 9000:9100",
                "infrastructure",
            )
        ]
    if n_asked == 0:
        return []
    return [note("connections", f"{n_asked} of {n_asked} workers fetch from the next one")]


def check_dashboard(dashboard: str, error: str) -> HealthLine:
    """Check that the dashboard of a scheduler can be opened.

    Parameters
    ----------
    dashboard
        Its address; empty where none is served.
    error
        Why its port does not answer; empty where it does.
    """
    if not dashboard:
        return note("dashboard", "none is served")
    if error:
        return warn(
            "dashboard",
            f"{dashboard} does not answer: {error}",
            "open its port, or reach it by a tunnel",
        )
    return note("dashboard", dashboard)


def check_encryption(
    open_addresses: Sequence[str], certificates: Sequence[CertificateFacts], *, encrypted: bool
) -> list[HealthLine]:
    """Check that connections are encrypted where others could read them, and until when.

    Parameters
    ----------
    open_addresses
        Addresses of scheduler and workers that are neither encrypted nor of loopback.
    certificates
        Certificates of the connections.
    encrypted
        Whether the scheduler's connection is encrypted.
    """
    if open_addresses:
        return [
            warn(
                "encryption",
                f"none at {list_some(open_addresses)}: whoever reaches the port reads the data and runs code",
                "use tls:// with keys of your own, or a closed network",
            )
        ]
    if not encrypted:
        return [note("encryption", "none, and all connections are on loopback")]
    lines = []
    for each in certificates:
        if each.error:
            lines.append(
                warn(
                    "encryption",
                    f"certificate of {each.whose}: {each.error}",
                    "check the files that Dask's tls settings name",
                )
            )
        elif each.days < 0:
            lines.append(
                fail(
                    "encryption",
                    f"certificate of {each.whose} ended {-each.days:.0f} days ago",
                    "renew it, then restart scheduler and workers",
                    "infrastructure",
                )
            )
        elif each.days < SOON_DAYS:
            lines.append(
                warn(
                    "encryption",
                    f"certificate of {each.whose} ends in {each.days:.0f} days",
                    "renew it, then restart scheduler and workers",
                )
            )
    if lines:
        return lines
    until = (
        f", certificates for {min(each.days for each in certificates):.0f} days"
        if certificates
        else ""
    )
    return [note("encryption", f"TLS{until}")]


def check_clocks(skews: Mapping[str, float]) -> HealthLine:
    """Compare clocks with the client's.

    Parameters
    ----------
    skews
        Seconds by which others are ahead: of the scheduler, of workers, of the store's server, of Prefect's.
    """
    if not skews:
        return note("clocks", "there is no other to compare with")
    wrong = [
        f"{name} ({abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'})"
        for name, skew in skews.items()
        if abs(skew) > MAX_SKEW
    ]
    if wrong:
        return warn(
            "clocks",
            f"differ from this one: {list_some(wrong)}: runs start late, records and logs are out of order, "
            "certificates and signed requests may count as over",
            "synchronise them (NTP, chrony)",
        )
    worst = max(map(abs, skews.values()))
    return note(
        "clocks", f"{', '.join(_sum_up(skews))}: within {max(worst, 0.1):.1f} s of this one"
    )


def _sum_up(names: Mapping[str, float]) -> list[str]:
    workers = [name for name in names if "://" in name]
    said = [name for name in names if "://" not in name]
    return said + ([f"{len(workers)} worker{'' if len(workers) == 1 else 's'}"] if workers else [])
