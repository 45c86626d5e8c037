"""Flows at the command line: without a Prefect server, none is started and Prefect is not imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.pipeline_flow import pipeline_flow
from flows.prefect_server import is_server_configured

ROOT = Path(__file__).parents[2]
RUN = """
import sys
sys.argv = ["pmf", "run", sys.argv[1], "--json"]
from flows.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
heavy = {"prefect", "distributed", "dask"}
print(sorted(heavy & sys.modules.keys()), file=sys.stderr)
"""


def clean(tmp_path, **variables):
    """Environment of a user who has never used Prefect."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return kept | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)} | variables


def test_run__a_small_table_needs_neither_prefect_nor_workers(tmp_path):
    rows = "\n".join(f"{i % 2},{i % 3},{i % 2}" for i in range(10))
    (tmp_path / "log.csv").write_text(f"q1,q2,q3\n{rows}\n")
    environment = clean(tmp_path)
    draft = ("-m", "flows", "infer", "log.csv", "--rank", "2")
    subprocess.run([sys.executable, *draft], cwd=tmp_path, env=environment, check=True)
    done = subprocess.run(
        [sys.executable, "-c", RUN, "pipeline.toml"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"
    assert not (tmp_path / "store" / ".prefect").exists()


def test_pipeline_flow__is_a_function_without_a_server(monkeypatch):
    monkeypatch.setattr("flows.pipeline_flow.is_server_configured", lambda: False)
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
    program = "import flows.prefect_server as s; print(s.is_server_configured())"
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
