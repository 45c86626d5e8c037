"""Checks of a Dask cluster: scheduler, workers, ports, connections between them, clocks."""

from __future__ import annotations

from collections.abc import Mapping

from pmflib.cluster.versions import SAME_EVERYWHERE
from pmflib_tasks.operations.doctor import HealthLine, fail, list_first, note, warn

MAX_SKEW = 10.0
"""Seconds by which clocks may differ before it is worth a line: a machine that is busy may say its time some late."""


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


def check_worker_states(
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
                f"{len(silent)} of {len(states)} cannot say what they see: {list_first(reasons)}",
                "install pmflib there from the same lock file, or restart them",
                "infrastructure",
            )
        )
    if idle := [f"{name} ({state})" for name, state in states.items() if state != "running"]:
        lines.append(
            warn(
                "workers",
                f"not running: {list_first(idle)}",
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
        if all("No module named" in why for why in unfetched.values()):
            remedy = SAME_EVERYWHERE
        else:
            remedy = "open the workers' ports to each other; fix them by dask worker --worker-port 9000:9100"
        return [
            fail(
                "connections",
                f"{len(unfetched)} of {n_asked} workers cannot fetch from the next: {list_first(said)}",
                remedy,
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
        Why its page cannot be read; empty where it can.
    """
    if not dashboard:
        return note("dashboard", "none is served")
    if not error:
        return note("dashboard", dashboard)
    if "bokeh" in error:
        remedy = "where the scheduler runs: pip install 'pmflib[dashboard]', and start the scheduler again"
    else:
        remedy = "open its port, or reach it by a tunnel"
    return warn("dashboard", f"{dashboard} shows nothing: {error}", remedy)


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
            f"differ from this one: {list_first(wrong)}: runs start late, records and logs are out of order, "
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
