"""Flows at the command line: without a Prefect server, none is started and Prefect is not imported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pmflib_flows.pipeline_flow import is_server_configured, pipeline_flow

ROOT = Path(__file__).parents[2]
RUN = """
import sys
heavy = set(sys.argv[1].split())
sys.argv = ["pmf", "run", "pipeline.toml", "--json"]
from pmflib_flows.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(sorted(heavy & sys.modules.keys()), file=sys.stderr)
"""


def clean(tmp_path, **variables):
    """Environment of a user who has never used Prefect."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return kept | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)} | variables


def run_and_list(folder, heavy):
    """Run the pipeline of a folder; the outcome, and which of some modules were imported."""
    command = [sys.executable, "-c", RUN, heavy]
    done = subprocess.run(command, cwd=folder, env=clean(folder), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["outcome"], done.stderr.splitlines()[-1]


def infer(folder, *words):
    command = [sys.executable, "-m", "pmflib_flows", "infer", "log.csv", "--rank", "2", *words]
    subprocess.run(command, cwd=folder, env=clean(folder), check=True)


@pytest.mark.needs("surveys.drafting")
def test_run__a_small_table_needs_neither_prefect_nor_workers(tmp_path):
    rows = "\n".join(f"{i % 2},{i % 3},{i % 2}" for i in range(10))
    (tmp_path / "log.csv").write_text(f"q1,q2,q3\n{rows}\n")
    infer(tmp_path)
    assert run_and_list(tmp_path, "prefect distributed dask pandas") == ("promoted", "[]")
    assert not (tmp_path / "store" / ".prefect").exists()


@pytest.mark.needs("surveys.drafting")
def test_run__quiet_nights_of_a_log_with_identifiers_import_nothing_heavy(tmp_path):
    rows = "\n".join(f"p{i // 3},q{i % 3},{i % 2}" for i in range(90))
    (tmp_path / "log.csv").write_text(f"person,question,answer\n{rows}\n")
    os.utime(tmp_path / "log.csv", (1e9, 1e9))
    infer(tmp_path, "--sample", "person", "--variable", "question", "--value", "answer")
    heavy = "prefect distributed dask numba scipy zarr pandas openlineage pyarrow.compute"
    assert run_and_list(tmp_path, heavy)[0] == "promoted"
    # the data are compared with those of the model that is live now
    assert run_and_list(tmp_path, heavy)[0] == "unchanged"
    assert run_and_list(tmp_path, heavy) == ("unchanged", "[]")


def test_spare_pandas__tables_are_still_converted(tmp_path):
    program = (
        "import sys, pyarrow\n"
        "from pmflib_flows.pipeline_flow import spare_pandas\n"
        "spare_pandas()\n"
        "table = pyarrow.table({'a': [1, 2]})\n"
        "print('pandas' in sys.modules, table.to_pandas()['a'].sum())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=clean(tmp_path), capture_output=True, text=True
    )
    assert done.stdout.split() == ["False", "3"], done.stderr


def test_pipeline_flow__is_a_function_without_a_server(monkeypatch):
    monkeypatch.setattr("pmflib_flows.pipeline_flow.is_server_configured", lambda: False)
    calls = []
    flow = pipeline_flow(name="one")(lambda config: calls.append(config) or 7)
    assert (flow("a.toml"), calls, flow.name) == (7, ["a.toml"], "one")


@pytest.mark.parametrize(
    ("variables", "profile", "expected"),
    [
        ({}, "", False),
        ({"PREFECT_API_URL": "http://127.0.0.1:9/api"}, "", True),
        ({}, 'active = "a"\n[profiles.a]\nPREFECT_API_URL = "http://127.0.0.1:9/api"\n', True),
        ({}, 'active = "a"\n[profiles.a]\nPREFECT_LOGGING_LEVEL = "INFO"\n', False),
    ],
)
def test_is_server_configured__environment_and_profile(tmp_path, variables, profile, expected):
    if profile:
        (tmp_path / ".prefect").mkdir()
        (tmp_path / ".prefect" / "profiles.toml").write_text(profile)
    program = "import pmflib_flows.pipeline_flow as s; print(s.is_server_configured())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=clean(tmp_path, **variables),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(expected)


def test_is_server_configured__in_this_process(monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    assert is_server_configured()
