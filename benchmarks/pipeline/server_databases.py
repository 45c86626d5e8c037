"""A Prefect server on SQLite and on PostgreSQL under load: requests a second, how long they take, and which fail.

    python -m benchmarks.pipeline.server_databases

Clients do at once, each again and again, what a run does: a flow run is made and set to running, four task runs
likewise, with log lines, and all are completed. PostgreSQL is left out where its programs are not installed.
Prefect answers 503 where SQLite says "database is locked"; its own clients then ask again, these do not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np

INITDB = next(iter(Path("/usr/lib").glob("postgresql/*/bin/initdb")), shutil.which("initdb"))
TASKS = 4
LINES = 10
TIMEOUT_SECONDS = 60.0


def find_free_port() -> int:
    """Port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def run_postgresql(folder: Path) -> Iterator[str]:
    """An empty database on loopback; its URL for Prefect."""
    programs, port = Path(str(INITDB)).parent, find_free_port()
    as_user: list[str] = []
    if os.geteuid() == 0:
        # its programs refuse to run as root
        as_user = shlex.split("setpriv --reuid=nobody --regid=nogroup --clear-groups")
        shutil.chown(folder, "nobody", "nogroup")
    made = [f"{programs}/initdb", "--pgdata", f"{folder}/data", "--username", "prefect"]
    subprocess.run([*as_user, *made], check=True, capture_output=True, cwd=folder)
    command = [f"{programs}/postgres", "-D", f"{folder}/data", "-p", str(port), "-k", str(folder)]
    process = subprocess.Popen(
        [*as_user, *command, "-c", "listen_addresses=127.0.0.1"], stderr=subprocess.DEVNULL
    )
    address = ["--host", "127.0.0.1", "--port", str(port), "--username", "prefect"]
    try:
        while subprocess.run([f"{programs}/pg_isready", *address], capture_output=True).returncode:
            time.sleep(0.2)
        subprocess.run([f"{programs}/createdb", *address, "prefect"], check=True)
        yield f"postgresql+asyncpg://prefect@127.0.0.1:{port}/prefect"
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def run_server(folder: Path, **environment: str) -> Iterator[str]:
    """A Prefect server on loopback, with its log in a folder; the address of its API."""
    port = find_free_port()
    url = f"http://127.0.0.1:{port}/api"
    own = {
        "PREFECT_HOME": str(folder),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    command = ["-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, *command], env=os.environ | own | environment, stdout=log, stderr=log
        )
    try:
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{url}/health", timeout=1)
                break
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(60)


async def do_runs(url: str, until: float, seconds: list[float], errors: Counter[str]) -> None:
    """Make runs, one after the other, until a time comes."""
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_SECONDS) as client:

        async def post(path: str, content: object) -> str:
            began = time.monotonic()
            try:
                answer = await client.post(path, json=content)
            except httpx.HTTPError as error:
                errors[type(error).__name__] += 1
                return ""
            finally:
                seconds.append(time.monotonic() - began)
            if answer.is_error:
                errors[str(answer.status_code)] += 1
                return ""
            return str((answer.json() or {}).get("id", "")) if answer.content else ""

        async def set_state(kind: str, each: str, state: str) -> None:
            if each:
                await post(f"/{kind}/{each}/set_state", {"state": {"type": state}, "force": True})

        flow = await post("/flows/", {"name": "etl"})
        while flow and time.monotonic() < until:
            run = await post("/flow_runs/", {"flow_id": flow, "state": {"type": "PENDING"}})
            await set_state("flow_runs", run, "RUNNING")
            for name in range(TASKS) if run else ():
                content = {"flow_run_id": run, "task_key": "stage", "name": f"stage-{name}"}
                task = await post("/task_runs/", content | {"dynamic_key": uuid.uuid4().hex})
                await set_state("task_runs", task, "RUNNING")
                line = {"name": "pmf", "level": 20, "message": "read files", "flow_run_id": run}
                moment = datetime.now(UTC).isoformat()
                await post("/logs/", [line | {"timestamp": moment}] * LINES)
                await set_state("task_runs", task, "COMPLETED")
            await set_state("flow_runs", run, "COMPLETED")


async def load(url: str, clients: int, duration: float) -> tuple[list[float], Counter[str]]:
    """Let clients make runs at once for some seconds; seconds of each request, and errors by kind."""
    seconds: list[float] = []
    errors: Counter[str] = Counter()
    until = time.monotonic() + duration
    await asyncio.gather(*(do_runs(url, until, seconds, errors) for _ in range(clients)))
    return seconds, errors


def measure(name: str, url: str, clients: list[int], duration: float) -> None:
    """Print a row for each number of clients."""
    for n in clients:
        began = time.monotonic()
        seconds, errors = asyncio.run(load(url, n, duration))
        rate = len(seconds) / (time.monotonic() - began)
        middle, tail = np.percentile(seconds, [50, 99])
        said = ", ".join(f"{count} {kind}" for kind, count in sorted(errors.items())) or "none"
        print(
            f"| {name} | {n} | {rate:,.0f} | {1000 * middle:,.0f} | {1000 * tail:,.0f} | {said} |",
            flush=True,
        )


def main() -> None:
    """Measure both databases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--only", choices=("sqlite", "postgresql"))
    arguments = parser.parse_args()
    print("| database | clients | requests / s | median, ms | 99 %, ms | errors |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        for timeout in () if arguments.only == "postgresql" else ("10", "60"):
            folder = Path(name) / timeout
            folder.mkdir()
            with run_server(folder, PREFECT_SERVER_DATABASE_TIMEOUT=timeout) as url:
                label = f"SQLite, timeout {timeout} s"
                measure(label, url, arguments.clients, arguments.seconds)
    if arguments.only == "sqlite":
        return
    if INITDB is None:
        print("PostgreSQL is not installed")
        return
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as database,
        run_postgresql(Path(database)) as connection,
        run_server(Path(name), PREFECT_SERVER_DATABASE_CONNECTION_URL=connection) as url,
    ):
        measure("PostgreSQL", url, arguments.clients, arguments.seconds)


if __name__ == "__main__":
    main()
