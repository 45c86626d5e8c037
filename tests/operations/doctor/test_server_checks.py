from dataclasses import replace

import pytest

from pmflib_flows.server_state import find_database
from pmflib_tasks.operations.doctor.server_checks import DeploymentState, ServerState, check_server
from tests.operations.doctor.health_cases import states_of

NIGHTLY = DeploymentState(
    "etl/nightly",
    paused=False,
    schedules=("cron 30 2 * * *",),
    pool="pmf",
    pool_error="",
    n_polling=1,
)
SERVER = ServerState(
    "http://127.0.0.1:4200/api", "", "3.8.8", "3.8.8", "postgresql", 0.0, (NIGHTLY,)
)
HIDDEN = {"server": {"database": {"driver": None, "connection_url": "**********"}}}


def find_worst(server):
    return [line for line in check_server(server) if line.state != "ok"]


def test_check_server__all_is_well_or_none_is_configured():
    lines = check_server(SERVER)
    assert states_of(lines) == ["ok"] * 5
    assert [line.what for line in lines][-3:] == ["deployment", "schedule", "work pool"]
    assert states_of(check_server(None)) == ["ok"]


def test_check_server__silent():
    (line,) = check_server(ServerState("http://h/api", "ConnectError: refused"))
    assert (line.state, line.fault) == ("FAIL", "infrastructure")


@pytest.mark.parametrize(
    ("change", "state", "said"),
    [
        ({"version": "3.7.0"}, "warn", "the client has 3.8.8"),
        ({"version": "4.0.0"}, "FAIL", "do not understand"),
        ({"url": "http://10.0.0.1:4200/api"}, "warn", "not encrypted"),
        ({"deployments": ()}, "warn", "none runs this pipeline"),
    ],
)
def test_check_server__what_is_amiss(change, state, said):
    (line,) = find_worst(replace(SERVER, **change))
    assert line.state == state
    assert said in line.found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"paused": True}, "paused: etl/nightly"),
        ({"schedules": ()}, "nothing starts by itself"),
        ({"n_polling": 0}, "no worker polls 'pmf'"),
        ({"pool_error": "is paused"}, "'pmf' is paused"),
        ({"pool": "", "n_polling": 0}, "no process serves etl/nightly"),
    ],
)
def test_check_server__who_would_run_it(change, said):
    (line,) = find_worst(replace(SERVER, deployments=(replace(NIGHTLY, **change),)))
    assert line.state == "warn"
    assert said in line.found


def test_check_server__address_behind_https_is_encrypted():
    assert find_worst(replace(SERVER, url="https://prefect.example.org/api")) == []


def test_find_database__what_the_server_says_and_what_it_hides(monkeypatch, tmp_path):
    here = "http://127.0.0.1:4200/api"
    monkeypatch.delenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", raising=False)
    monkeypatch.delenv("PREFECT_API_DATABASE_CONNECTION_URL", raising=False)
    assert (
        find_database({"server": {"database": {"driver": "postgresql+asyncpg"}}}, here)
        == "postgresql"
    )
    assert find_database(HIDDEN, here) == ""
    (tmp_path / "prefect.db-wal").touch()
    assert find_database({**HIDDEN, "home": str(tmp_path)}, here) == "sqlite"
    monkeypatch.setenv(
        "PREFECT_SERVER_DATABASE_CONNECTION_URL", "postgresql+asyncpg://u:secret@h/db"
    )
    assert find_database(HIDDEN, here) == "postgresql"
    # the environment of another machine's server is not this one's
    assert find_database(HIDDEN, "http://10.0.0.1:4200/api") == ""
    assert find_database({}, here) == "postgresql"
