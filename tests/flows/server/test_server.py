import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from flows.server.embedded import prefect_api

ROOT = Path(__file__).parents[3]
WAIT_SECONDS = 200

# Prefect is run in processes of its own: its settings are read once, when it is imported.
PROGRAM = """
import os, signal, sys, time
from pathlib import Path

from flows.server.embedded import prefect_api

api = prefect_api(Path(sys.argv[1]))
from prefect import flow, get_client, task

@task
def double(i):
    return 2 * i

@flow
def add_doubles(n):
    return sum(double(i) for i in range(n))

@flow
def divide_by_zero():
    return double(1) / 0

with api as url:
{body}
"""

Start = Callable[..., subprocess.Popen[str]]


def isolated_environment(folder: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "DO_NOT_TRACK"))}
    return kept | {"PYTHONPATH": str(ROOT), "HOME": str(folder)}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Give a function that runs a body of statements within `prefect_api`."""
    processes: list[subprocess.Popen[str]] = []

    def run(body: str, **variables: str) -> subprocess.Popen[str]:
        lines = "\n".join("    " + line for line in body.strip().splitlines())
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(body=lines), str(tmp_path / "home")],
            cwd=tmp_path,
            env=isolated_environment(tmp_path) | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def read_task_states(home: Path) -> list[str]:
    with closing(sqlite3.connect(home / "prefect.db")) as database:
        return [state for (state,) in database.execute("SELECT state_type FROM task_run")]


def read_flow_states(home: Path) -> list[str]:
    with closing(sqlite3.connect(home / "prefect.db")) as database:
        return [state for (state,) in database.execute("SELECT state_type FROM flow_run")]


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + WAIT_SECONDS
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not is_running(pid)


def test_prefect_api__second_run_sees_first(start: Start, tmp_path: Path) -> None:
    body = """
add_doubles(30)
with get_client(sync_client=True) as client:
    before = len(client.read_flow_runs())
sys.stdout.write(f"{before} {api.pid}")
"""
    for run in (1, 2):
        process = start(body)
        out, err = process.communicate(timeout=WAIT_SECONDS)
        n_runs, pid = map(int, out.split())
        assert (process.returncode, err, n_runs) == (0, "", run)
        assert not is_running(pid)
    assert read_task_states(tmp_path / "home") == ["COMPLETED"] * 60
    assert read_flow_states(tmp_path / "home") == ["COMPLETED"] * 2


def test_prefect_api__flow_fails(start: Start, tmp_path: Path) -> None:
    body = """
try:
    divide_by_zero()
except ZeroDivisionError as error:
    sys.stdout.write(str(error))
raise KeyError(api.pid)
"""
    process = start(body, PREFECT_LOGGING_LEVEL="CRITICAL")
    out, err = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, out) == (1, "division by zero")
    error, pid = err.splitlines()[-1].split()
    assert error == "KeyError:"
    assert not is_running(int(pid))
    assert err.count("Traceback") == 1
    assert read_flow_states(tmp_path / "home") == ["FAILED"]
    assert read_task_states(tmp_path / "home") == ["COMPLETED"]


def test_prefect_api__flow_is_retried(start: Start, tmp_path: Path) -> None:
    body = """
tries = []

@task(retries=1)
def fail_once():
    tries.append(1)
    if len(tries) == 1:
        raise OSError

@flow(retries=1)
def fail_once_more():
    double(1)
    fail_once()
    if len(tries) == 2:
        raise OSError

fail_once_more()
"""
    process = start(body, PREFECT_LOGGING_LEVEL="CRITICAL")
    _, err = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, err) == (0, "")
    assert read_flow_states(tmp_path / "home") == ["COMPLETED"]
    assert set(read_task_states(tmp_path / "home")) == {"COMPLETED"}


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_prefect_api__signal_ends_server(start: Start, kind: signal.Signals) -> None:
    process = start("print(api.pid, flush=True)\ntime.sleep(1000)")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert is_running(pid)
    process.send_signal(kind)
    process.wait(WAIT_SECONDS)
    assert wait_until_gone(pid)


@pytest.mark.slow
def test_prefect_api__two_processes_share_home(start: Start, tmp_path: Path) -> None:
    body = """
for _ in range(8):
    add_doubles(20)
"""
    # Without retries each refusal of a write by SQLite fails its run.
    no_retries = {"PREFECT_CLIENT_MAX_RETRIES": "0"}
    for process in [start(body, **no_retries), start(body, **no_retries)]:
        _, err = process.communicate(timeout=WAIT_SECONDS)
        assert (process.returncode, err) == (0, "")
    assert read_task_states(tmp_path / "home") == ["COMPLETED"] * 320
    assert read_flow_states(tmp_path / "home") == ["COMPLETED"] * 16


def test_prefect_api__killed_server_is_replaced(start: Start, tmp_path: Path) -> None:
    body = """
@flow
def disturb():
    double(1)
    os.kill(api.pid, signal.SIGKILL)
    return double(2)
assert disturb() == 4
add_doubles(3)
"""
    process = start(body)
    out, _ = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, out) == (0, "")
    assert read_flow_states(tmp_path / "home") == ["COMPLETED"] * 2


def test_prefect_api__server_is_killed_again_and_again(start: Start) -> None:
    body = """
import threading
def kill():
    killed = set()
    while len(killed) < 3:
        if api.pid not in killed:
            killed.add(api.pid)
            os.kill(api.pid, signal.SIGKILL)
        time.sleep(0.05)
threading.Thread(target=kill).start()
time.sleep(100)
"""
    process = start(body)
    start_time = time.monotonic()
    _, err = process.communicate(timeout=WAIT_SECONDS)
    assert time.monotonic() - start_time < 90
    assert process.returncode == 1
    assert "StoreError: home=" in err
    assert "again and again" in err


def test_prefect_api__requests_without_the_secret_are_refused(start: Start) -> None:
    body = """
import httpx, asyncio, websockets
codes = [
    httpx.post(f"{url}/flow_runs/filter", json={}).status_code,
    httpx.post(f"{url}/flow_runs/filter", json={}, auth=("pmf", "guess")).status_code,
    httpx.post(f"{url}/flow_runs/filter", json={}, auth=tuple(api._secret.split(":"))).status_code,
]
async def listen():
    address = url.replace("http", "ws") + "/events/in"
    async with websockets.connect(address, subprotocols=["prefect"]) as socket:
        await socket.send('{"type": "auth", "token": "guess"}')
        return await socket.recv()
try:
    codes.append(asyncio.run(listen()))
except websockets.exceptions.ConnectionClosed as closed:
    codes.append(closed.rcvd.code)
shown = open(f"/proc/{api.pid}/cmdline").read()
codes.append(api._secret in shown or api._secret.split(":")[1] in shown)
print(codes)
"""
    process = start(body)
    out, err = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 0, err
    assert out == "[401, 401, 200, 1008, False]\n"


def test_prefect_api__damaged_database(start: Start, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "prefect.db").write_bytes(b"not a database" * 100)
    process = start("pass")
    _, err = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 1
    assert "StoreError: home=" in err.splitlines()[-1]
    assert b"file is not a database" in (home / "server.log").read_bytes()


def test_prefect_api__configured_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://example.invalid/api")
    api = prefect_api(tmp_path / "home")
    with api as url:
        assert url == "http://example.invalid/api"
        assert api.pid is None
    assert not (tmp_path / "home").exists()


def test_is_server_configured__profile(tmp_path: Path) -> None:
    program = "import flows.server.embedded as s; print(s.is_server_configured())"
    answers = []
    for profile in ("ephemeral", "ours"):
        (tmp_path / "profiles.toml").write_text(
            f'active = "{profile}"\n[profiles.ephemeral]\n'
            '[profiles.ours]\nPREFECT_API_URL = "http://example.invalid/api"\n'
        )
        answers.append(
            subprocess.run(
                [sys.executable, "-c", program],
                cwd=tmp_path,
                env=isolated_environment(tmp_path) | {"PREFECT_HOME": str(tmp_path)},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            ).stdout.strip()
        )
    assert answers == ["False", "True"]


MIGRATE = """
import asyncio, sys
from pathlib import Path

from flows.server.process import build_database

if sys.argv[1] == "ours":
    build_database(Path(sys.argv[2]))
else:
    from prefect.server.database import provide_database_interface

    asyncio.run(provide_database_interface().create_db())
"""


@pytest.mark.slow
def test_build_database__same_as_prefects_own(tmp_path: Path) -> None:
    contents = []
    for kind in ("ours", "theirs"):
        path = tmp_path / f"{kind}.db"
        url = f"sqlite+aiosqlite:///{path}"
        environment = isolated_environment(tmp_path)
        result = subprocess.run(
            [sys.executable, "-c", MIGRATE, kind, str(path)],
            env=environment | {"PREFECT_SERVER_DATABASE_CONNECTION_URL": url},
            stderr=subprocess.PIPE,
            text=True,
            timeout=WAIT_SECONDS,
        )
        assert (result.returncode, result.stderr) == (0, "")
        contents.append(read_contents(path))
    assert len(contents[0]) > 100
    assert contents[0] == contents[1]


def read_contents(path: Path) -> dict[str, object]:
    """Return the definition of each table and index, the columns and number of rows of each table.

    The lines of a definition are sorted: Alembic rebuilds a table with its constraints in the order
    of a set, which differs from run to run.
    """
    with closing(sqlite3.connect(path)) as database:
        objects = database.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        contents: dict[str, object] = {}
        for kind, name, sql in objects:
            contents[name] = sorted(line.strip("\t ,") for line in (sql or "").splitlines())
            if kind == "table":
                columns = database.execute(f"PRAGMA table_info({name})").fetchall()
                (n_rows,) = database.execute(f"SELECT count(*) FROM {name}").fetchone()
                contents[f"{name} table"] = (columns, n_rows)
        contents["version"] = database.execute("SELECT * FROM alembic_version").fetchall()
    return contents
