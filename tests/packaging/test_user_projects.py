"""pmf in the folder of a project that has modules `flows` and `tasks` of its own, first on the path of Python."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pmflib.apps.demo import write_demo_log
from tests.deploy.test_deployment import PREFECT, Site, make_environment, read_live, write_pipeline

PMF = Path(sys.executable).with_name("pmf")
OWN = "def double(number):\n    return 2 * number\n"
NIGHTLY = """
from prefect import flow

import tasks
from flows.own import double
from pmflib_flows.etl import etl

@flow
def nightly(config: str) -> None:
    assert tasks.double(2) == double(2) == 4
    assert etl(config)["outcome"]
"""
PROJECTS = {
    "packages": {
        "flows/__init__.py": "",
        "flows/own.py": OWN,
        "flows/nightly.py": NIGHTLY,
        "tasks/__init__.py": OWN,
    },
    "folder and module": {"flows/own.py": OWN, "flows/nightly.py": NIGHTLY, "tasks.py": OWN},
}
"""Files of projects. In a folder without `__init__.py` lies a namespace package, which gives way to any other."""
WORK = """
import os, sys
from flows.own import double
from pmflib_tasks.config import load_config
from pmflib.cluster.clients import open_client
from pmflib.cluster.workers import start_workers
from pmflib_flows.etl import etl

def find_own():
    import flows.own, tasks
    return os.getpid(), flows.own.__file__, tasks.__file__

def list_finished(dask_scheduler):
    return [name for name, each in dask_scheduler.task_prefixes.items() if "compute" in each.all_durations]

if __name__ == "__main__":
    cluster = load_config(sys.argv[1]).cluster
    with start_workers(cluster) as address, open_client(address, cluster) as client:
        os.environ["PMF_DASK_ADDRESS"] = address
        etl(sys.argv[1])
        assert "count-fold" in client.run_on_scheduler(list_finished)
        workers = set(client.run(find_own).values())
        assert len(workers) == 2
        assert {each[1:] for each in workers} == {find_own()[1:]}
        assert sum(client.gather(client.map(double, range(4)))) == 12
"""
DEPLOYMENTS = """
deployments:
  - {name: own, entrypoint: "flows/nightly.py:nightly", work_pool: {name: pmf}}
  - {name: ours, entrypoint: pmflib_flows.deployments.etl, work_pool: {name: pmf}}
"""


@pytest.fixture(scope="module", params=PROJECTS)
def project(request, tmp_path_factory):
    """Folder of a project."""
    folder = tmp_path_factory.mktemp("project")
    for name, text in PROJECTS[request.param].items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder


def run(folder, *words):
    """Run a command in a project; what it writes to standard output."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
    return done.stdout


def test_command__runs_in_a_project_with_such_names(project):
    write_demo_log(project / "log", n_users=100, seed=0)
    words = ("log/*.csv", "--rank", 2, "--output", "drafted", "--json")
    run(project, PMF, "infer", *words)
    found = run(
        project,
        sys.executable,
        "-c",
        "import pmflib_flows.cli, flows.own, tasks; print(flows.own, tasks)",
    )
    assert found.count(str(project)) == 2


@pytest.mark.slow
def test_workers__are_processes_in_a_project_with_such_names(project):
    (project / "workers").mkdir()
    config = write_pipeline(project / "workers")
    config.write_text(config.read_text() + "\n[cluster]\nworkers = 2\nprocesses = true\n", "utf-8")
    (project / "work.py").write_text(WORK, "utf-8")
    run(project, sys.executable, "work.py", config)
    assert json.loads(run(project, PMF, "run", config, "--json"))["outcome"] == "unchanged"
    assert json.loads(run(project, PMF, "status", config, "--json"))["live"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_prefect_worker__runs_flows_of_both_in_a_project_with_such_names(project):
    (project / "nightly").mkdir()
    config = write_pipeline(project / "nightly")
    (project / "prefect.yaml").write_text(DEPLOYMENTS, "utf-8")
    site = Site(project, make_environment(project) | {"PYTHONPATH": "."}, working_folder=project)
    try:
        site.start("server", *PREFECT, "server", "start")
        site.run(*PREFECT, "server", "status", "--wait", "--timeout", "200")
        site.run(*PREFECT, "--no-prompt", "work-pool", "create", "pmf", "--type", "process")
        site.run(*PREFECT, "--no-prompt", "deploy", "--all")
        site.start("worker", *PREFECT, "worker", "start", "--pool", "pmf")
        for name in ("nightly/own", "etl/ours"):
            words = ("--param", f"config={config}", "--watch", "--watch-timeout", "350")
            said = site.run(*PREFECT, "deployment", "run", name, *words)
            assert "Completed" in said, site.read_logs()
    finally:
        site.stop()
    assert read_live(config).kind == "model"
