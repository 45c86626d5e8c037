"""The command `pmf doctor`, before anything is there and with a server and workers."""

import json

import pytest
from distributed import LocalCluster

from pmflib_flows.commands.doctor import FAULTS
from pmflib_flows.etl import etl
from tests.pipelines import as_wide, draw_codes, make_schema
from tests.prefect_server import serve_prefect


@pytest.fixture
def pipeline(tmp_path, monkeypatch):
    """The file of a pipeline of 300 rows, whose store is not there yet."""
    for name in ("PMF_DASK_ADDRESS", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    schema = make_schema(3, 2, 4)
    schema.save(tmp_path / "schema.json")
    (tmp_path / "a.csv").write_text(as_wide(draw_codes(300, schema.cardinalities)))
    file = tmp_path / "pipeline.toml"
    file.write_text('[source]\npath = "a.csv"\nlayout = "wide"\n[model]\nrank = 2\n')
    return file


def examine(call, *arguments):
    code, out, err = call("doctor", *map(str, arguments), "--json")
    assert err == ""
    answer = json.loads(out)
    assert answer["exit_code"] == code
    return code, {line["what"]: line for line in answer["lines"]}


def test_doctor__before_anything_is_there(call, pipeline):
    before = sorted(pipeline.parent.iterdir())
    code, lines = examine(call, pipeline)
    assert code == 0
    assert "not there yet" in lines["store"]["found"]
    assert lines["last run"]["found"] == "none yet"
    assert "no server is configured" in lines["Prefect"]["found"]
    assert sorted(pipeline.parent.iterdir()) == before


def test_doctor__lines_are_aligned_and_summed_up(call, pipeline):
    code, out, _ = call("doctor", str(pipeline))
    *lines, last = out.splitlines()
    assert code == 0
    assert all(line[:6].strip() in ("ok", "warn") for line in lines)
    column = lines[0].index(str(pipeline))
    assert all(line[column - 2 : column] == "  " for line in lines)
    assert f"{len(lines)} checks" in last


@pytest.mark.parametrize(
    ("break_it", "what", "expected"),
    [
        (lambda folder: (folder / "pipeline.toml").write_text("[model]\n"), "configuration", 2),
        (lambda folder: (folder / "a.csv").unlink(), "sources", 3),
        (lambda folder: (folder / "schema.json").unlink(), "schema", 3),
        (lambda folder: (folder / "store").write_text("a file"), "store", 4),
    ],
)
def test_doctor__exit_code_of_the_first_fault(call, pipeline, break_it, what, expected):
    break_it(pipeline.parent)
    code, lines = examine(call, pipeline)
    assert code == expected
    assert lines[what]["state"] == "FAIL"
    assert lines[what]["remedy"]


def test_doctor__too_little_memory(call, pipeline):
    pipeline.write_text(pipeline.read_text() + "[cluster]\nmemory_limit = 1000\n")
    code, lines = examine(call, pipeline)
    assert code == 5
    assert "counting pairs would need" in lines["memory"]["found"]


def test_doctor__no_scheduler_is_no_wait(call, pipeline):
    code, lines = examine(call, pipeline, "--address", "tcp://127.0.0.1:9")
    assert code == 7
    assert lines["scheduler"]["state"] == "FAIL"
    assert "workers" not in lines


def test_doctor__every_fault_has_an_exit_code():
    from pmflib_flows.exit_codes import EXIT_CODES

    assert {name: EXIT_CODES[error] for name, error in FAULTS.items()} == {
        "configuration": 2,
        "source": 3,
        "store": 4,
        "memory": 5,
        "infrastructure": 7,
    }


def test_doctor__with_workers_a_server_and_a_run(call, pipeline, tmp_path, monkeypatch):
    etl.fn(str(pipeline))
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            protocol="tcp://",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        serve_prefect(tmp_path / "prefect"),
    ):
        address = cluster.scheduler_address
        monkeypatch.setenv("PMF_DASK_ADDRESS", address)
        code, lines = examine(call, pipeline)
        assert code == 0, lines
        assert lines["last run"]["found"].startswith("run 1, ")
        assert lines["quarantine"]["found"] == "0 of 300 rows (0.00%)"
        assert lines["worker store"]["state"] == "ok"
        assert lines["Prefect database"]["found"].startswith("SQLite")
        assert lines["deployment"]["state"] == "warn"
        assert "Prefect, 1 worker" in lines["clocks"]["found"] or lines["clocks"]["state"] == "warn"

        deploy(pipeline)
        code, lines = examine(call, pipeline)
        assert code == 0
        assert lines["deployment"] == {
            "state": "ok",
            "what": "deployment",
            "found": "etl/nightly",
            "remedy": "",
            "fault": "",
        }
        assert lines["schedule"]["found"] == "etl/nightly cron 30 2 * * * UTC"
        assert "no worker polls 'pmf'" in lines["work pool"]["found"]

        poll("pmf")
        code, lines = examine(call, pipeline)
        assert lines["work pool"]["found"] == "'pmf' is polled by 1 worker"
        cluster.scale(0)
        cluster.sync(cluster._correct_state)
        code, lines = examine(call, pipeline)
        assert code == 7
        assert lines["workers"]["found"].startswith(f"0 workers at {address}")
    code, lines = examine(call, pipeline, "--address", address)
    assert code == 7


def deploy(pipeline):
    """Enter a nightly run of the pipeline at the server."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import DeploymentScheduleCreate, WorkPoolCreate
    from prefect.client.schemas.schedules import CronSchedule

    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name="pmf", type="process"))
        client.create_deployment(
            flow_id=client.create_flow_from_name("etl"),
            name="nightly",
            work_pool_name="pmf",
            path=str(pipeline.parent),
            parameters={"config": pipeline.name},
            schedules=[
                DeploymentScheduleCreate(schedule=CronSchedule(cron="30 2 * * *", timezone="UTC"))
            ],
        )


def poll(pool):
    """Send the server what a worker of the pool reports of itself, every so often."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        client.send_worker_heartbeat(pool, "alone", heartbeat_interval_seconds=30)
