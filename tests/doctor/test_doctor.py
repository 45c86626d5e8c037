"""The command `pmf doctor`, before anything exists and with a server and workers, and its checks."""

import json
import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest
from distributed import LocalCluster

from pmflib.cluster import find_versions
from pmflib.store import open_objects
from pmflib_flows.doctor import FAULTS, data_checks, health, server_checks
from pmflib_flows.etl import etl
from pmflib_flows.exit_codes import EXIT_CODES
from pmflib_tasks.config import load_config
from pmflib_tasks.feature import Feature, Place
from pmflib_tasks.health import Check, HealthLine
from tests.pipelines import as_wide, draw_codes, make_schema
from tests.prefect_server import serve_prefect


@pytest.fixture
def pipeline(tmp_path, monkeypatch):
    """The file of a pipeline of 300 rows, whose store does not exist yet."""
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
    assert lines["store"]["state"] == "ok"
    assert lines["Prefect"]["state"] == "ok"
    assert "workers" not in lines
    assert sorted(pipeline.parent.iterdir()) == before


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


def test_doctor__a_column_that_the_files_lack(call, pipeline):
    make_schema(3, 2, 4, 2).save(pipeline.parent / "schema.json")
    code, lines = examine(call, pipeline)
    assert (code, lines["columns"]["state"]) == (3, "FAIL")
    assert "variable 'v3' is no column of the file" in lines["columns"]["found"]


@pytest.mark.parametrize(("policy", "expected"), [("missing", 0), ("error", 3)])
def test_doctor__levels_that_the_schema_lacks(call, pipeline, policy, expected):
    codes = draw_codes(300, (3, 2, 4))
    codes[:3, 2] = 9
    (pipeline.parent / "b.csv").write_text(as_wide(codes))
    text = pipeline.read_text().replace('"a.csv"', '"*.csv"')
    pipeline.write_text(f'{text}[schema]\non_unknown_level = "{policy}"\n')
    code, lines = examine(call, pipeline)
    assert code == expected
    assert lines["columns"]["state"] == ("FAIL" if expected else "warn")
    assert "b.csv: levels '9' (3) of 'v2'" in lines["columns"]["found"]
    assert "pmf check" in lines["columns"]["remedy"]


def test_doctor__names_of_a_long_log_that_the_schema_lacks(call, pipeline):
    rows = ["who,what,answer", "a,v0,1", "a,w0,1", "b,v2,7", "b,v1,0"]
    (pipeline.parent / "a.csv").write_text("\n".join(rows) + "\n")
    columns = 'layout = "long"\nsample = "who"\nvariable = "what"\nvalue = "answer"'
    pipeline.write_text(pipeline.read_text().replace('layout = "wide"', columns))
    code, lines = examine(call, pipeline)
    assert (code, lines["columns"]["state"]) == (0, "warn")
    found = lines["columns"]["found"]
    assert "a.csv: variables 'w0'; a.csv: levels '7' (1) of 'v2'" in found
    pipeline.write_text(pipeline.read_text().replace('"what"', '"which"'))
    code, lines = examine(call, pipeline)
    assert (code, lines["columns"]["state"]) == (3, "FAIL")
    assert "no column 'which'" in lines["columns"]["found"]


def test_list_checks__asks_each_feature(pipeline, monkeypatch):
    line = HealthLine("warn", "toy", "is not well", "mend it")
    toy = Feature("toy", health=Place("tests.doctor.test_doctor:TOY_HEALTH"))
    monkeypatch.setattr(
        "tests.doctor.test_doctor.TOY_HEALTH",
        lambda config: [Check("toy", "", "", lambda: line)],
        raising=False,
    )
    monkeypatch.setattr("pmflib_tasks.features.FEATURES", (toy,))
    checks = health.list_checks(load_config(pipeline), None, has_memory=False)
    assert health.run_checks([each for each in checks if each.what == "toy"]) == [line]


def test_doctor__too_little_memory(call, pipeline):
    pipeline.write_text(pipeline.read_text() + "[cluster]\nmemory_limit = 1000\n")
    code, lines = examine(call, pipeline)
    assert code == 5
    assert lines["memory"]["state"] == "FAIL"


def test_doctor__no_scheduler(call, pipeline):
    code, lines = examine(call, pipeline, "--address", "tcp://127.0.0.1:9")
    assert code == 7
    assert lines["scheduler"]["state"] == "FAIL"
    assert "workers" not in lines


def test_doctor__every_fault_has_an_exit_code():
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
        assert not list((tmp_path / "store").glob(".pmf*"))
        names = ("store", "versions", "workers", "encryption", "Prefect", "clocks")
        assert {lines[what]["state"] for what in names} == {"ok"}
        cluster.scale(0)
        cluster.sync(cluster._correct_state)
        code, lines = examine(call, pipeline)
        assert code == 7
        assert lines["workers"]["state"] == "FAIL"
    code, lines = examine(call, pipeline, "--address", address)
    assert code == 7


def test_check_prefect__server_that_does_not_answer(monkeypatch):
    from prefect.settings import PREFECT_API_URL, temporary_settings

    url = "http://user:secret@127.0.0.1:9/api"
    monkeypatch.setenv("PREFECT_API_URL", url)
    with temporary_settings({PREFECT_API_URL: url}):
        line = server_checks.check_prefect()
    assert (line.state, line.fault) == ("FAIL", "infrastructure")
    assert "secret" not in line.found


def test_run_checks__one_that_hangs_or_raises_is_a_failure():
    over, passed = threading.Event(), HealthLine("ok", "kernels", "fine")

    def hang():
        over.wait()
        return passed

    def refuse():
        raise KeyError("path")

    checks = [
        Check("store", "store", "remedy", hang),
        Check("sources", "source", "remedy", refuse),
        Check("kernels", "", "", lambda: passed),
    ]
    hung, raised, fine = health.run_checks(checks, seconds=0.2)
    over.set()
    assert (hung.state, hung.fault) == ("FAIL", "store")
    assert (raised.state, raised.fault) == ("FAIL", "source")
    assert "KeyError" in raised.found
    assert fine.state == "ok"


def make_client(**answers):
    """Dask client of a scheduler with two workers, which answers as given."""
    worker = {"status": "running", "nthreads": 1, "memory_limit": 1 << 30, "host": "one"}
    worker["last_seen"] = time.time()
    addresses = ("tcp://10.0.0.1:1", "tcp://10.0.0.2:1")
    workers = {each: worker | answers.get("worker", {}) for each in addresses}
    return SimpleNamespace(
        scheduler=SimpleNamespace(address=answers.get("address", "tcp://10.0.0.3:8786")),
        scheduler_info=lambda n_workers: {"address": "tcp://10.0.0.3:8786", "workers": workers},
        run=lambda *_, **__: {each: answers.get("answer") for each in addresses},
        run_on_scheduler=lambda function: function(),
        get_versions=lambda packages: answers["versions"],
    )


@pytest.mark.parametrize(
    ("package", "version", "state"),
    [("numba", "0.1", "warn"), ("pmflib", "0.0", "FAIL"), ("pmflib", None, "FAIL")],
)
def test_check_versions__of_a_worker(package, version, state):
    ours = {"packages": find_versions()}
    other = {"packages": ours["packages"] | {package: version}}
    versions = {"client": ours, "scheduler": ours, "workers": {"tcp://a": ours, "tcp://b": other}}
    line = server_checks.check_versions(make_client(versions=versions))
    assert line.state == state
    assert f"{package} " in line.found
    assert "tcp://b" in line.found
    assert "tcp://a" not in line.found


def test_check_store__a_worker_that_hangs_leaves_no_probe(pipeline, monkeypatch):
    over = threading.Event()
    monkeypatch.setattr(
        server_checks, "ask_workers", partial(server_checks.ask_workers, seconds=0.2)
    )
    client = make_client()
    client.run = lambda *_, **__: over.wait()
    config = load_config(pipeline)
    check = next(
        each
        for each in health.list_checks(config, client, has_memory=False)
        if each.what == "store"
    )
    (line,) = health.run_checks([check])
    over.set()
    assert (line.state, line.fault) == ("FAIL", "infrastructure")
    assert not list(pipeline.parent.glob(".pmf*"))


@pytest.mark.parametrize("worker", [{"status": "paused"}, {"last_seen": time.time() - 60}])
def test_check_workers__that_do_not_work(worker):
    assert server_checks.check_workers(make_client(worker=worker)).state == "warn"


def test_check_clocks__of_a_worker_that_is_late():
    line = server_checks.check_clocks(make_client(answer=time.time() - 60))
    assert line.state == "warn"
    assert "tcp://10.0.0.1:1 (-6" in line.found


def test_check_encryption__beyond_loopback():
    assert server_checks.check_encryption(make_client()).state == "warn"


def test_check_kernels__of_workers_without_the_package():
    line = server_checks.check_kernels(make_client(answer=ModuleNotFoundError("pmflib")))
    assert line.state == "warn"
    assert "tcp://10.0.0.1:1" in line.found


def test_see_object__other_folder(tmp_path):
    open_objects(tmp_path).create("probe", b"first")
    assert data_checks.see_object(str(tmp_path), "probe") == ""
    (tmp_path / "other").mkdir()
    assert data_checks.see_object(str(tmp_path / "other"), "probe")


@pytest.mark.parametrize("broken", ["", "create", "replace"])
def test_find_lacking_conditions__of_a_bucket(bucket, monkeypatch, broken):
    objects = open_objects(f"s3://{bucket}/store")
    objects.create("probe", b"first")
    if broken:
        monkeypatch.setattr(
            type(objects), broken, lambda self, name, content, *_: self.put(name, content)
        )
    lacking = data_checks.find_lacking_conditions(objects, "probe")
    assert {"": "", "create": "If-None-Match", "replace": "If-Match"}[broken] in lacking
    assert bool(lacking) == bool(broken)
