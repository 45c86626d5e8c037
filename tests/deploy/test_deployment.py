"""The runbook, done by subprocesses on loopback: server, pool, deployments, worker, runs."""

import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pmflib.apps.demo import RANK, write_demo_log
from pmflib.ingest import make_source
from pmflib.store import Reference, Store, find_live
from pmflib_tasks.config import draft_config, load_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 400
STOP_SECONDS = 60
PREFECT = (sys.executable, "-m", "prefect")
PMF = (sys.executable, "-m", "pmflib_flows")
DASK = (sys.executable, "-m", "dask")
STAGES = ["count", "evaluate", "fit", "ingest", "marginals", "publish", "quality", "refine"]

# Names of the functions that the workers of a scheduler have finished, since it was started.
FINISHED = """
import json, sys
from distributed import Client

def list_finished(dask_scheduler):
    return [name for name, prefix in dask_scheduler.task_prefixes.items() if "compute" in prefix.all_durations]

with Client(sys.argv[1], timeout=60) as client:
    print(json.dumps(client.run_on_scheduler(list_finished)))
"""


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_environment(folder: Path) -> dict[str, str]:
    """What `deploy/environment.sh` makes of an environment in which only paths and ports are given."""
    ours = ("PREFECT", "PMF_", "DASK_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    given = {
        "HOME": str(folder),
        "NO_PROXY": "127.0.0.1",
        "PMF_CONFIG": str(folder / "nightly" / "pipeline.toml"),
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_SERVER_API_PORT": str(find_free_port()),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    result = subprocess.run(
        ["bash", "-c", ". deploy/environment.sh && env -0"],
        cwd=ROOT,
        env=kept | given,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(line.split("=", 1) for line in result.stdout.split("\0") if line)


@dataclass
class Site:
    """A machine on which the runbook is followed."""

    folder: Path
    environment: dict[str, str]
    working_folder: Path = ROOT
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, *command: str) -> str:
        result = subprocess.run(
            command,
            cwd=self.working_folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WAIT_SECONDS,
        )
        assert result.returncode == 0, f"{command}: {result.stdout}\n{self.read_logs()}"
        return result.stdout

    def start(self, name: str, *command: str) -> None:
        with open(self.folder / f"{name}.log", "wb") as log:
            self.processes.append(
                subprocess.Popen(
                    command,
                    cwd=self.working_folder,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )

    def stop(self) -> None:
        """End what was started, last first, and wait for it."""
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def read_logs(self) -> str:
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-3000:]}" for log in logs)

    def query(self, sql: str) -> list[Any]:
        with closing(sqlite3.connect(self.folder / "prefect" / "prefect.db")) as database:
            return [value for (value,) in database.execute(sql)]

    def wait_for(self, ready: Callable[[], bool], seconds: float = 0.5) -> None:
        """Look again and again, with so many seconds in between."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not ready():
            assert time.monotonic() < deadline, self.read_logs()
            time.sleep(seconds)


def write_pipeline(folder: Path) -> Path:
    """Write a small log, its schema and a configuration into a new folder."""
    _, truth = write_demo_log(folder / "log", n_users=2000, seed=0)
    truth.schema.save(folder / "schema.json")
    columns = {"sample": "user", "variable": "movie", "value": "rating", "time": "ts"}
    source = make_source({"path": "log/*.csv", "layout": "long", **columns})
    (folder / "pipeline.toml").write_text(draft_config(source, rank=RANK), "utf-8")
    return folder / "pipeline.toml"


def read_live(config: Path) -> Reference:
    checked = load_config(config)
    store = Store(checked.resolve(checked.store.path))
    live = find_live(store, checked.name)
    assert live is not None
    assert store.locate(live).is_dir()
    return live


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server, a pool, the deployments and a worker."""
    folder = tmp_path_factory.mktemp("site")
    site = Site(folder, make_environment(folder))
    write_pipeline(folder / "nightly")
    try:
        site.start("server", *PREFECT, "server", "start")
        site.run(*PREFECT, "server", "status", "--wait", "--timeout", str(WAIT_SECONDS // 2))
        site.run(*PREFECT, "--no-prompt", "work-pool", "create", "pmf", "--type", "process")
        site.run(
            *PREFECT, "--no-prompt", "deploy", "--prefect-file", "deploy/prefect.yaml", "--all"
        )
        worker = (sys.executable, "deploy/start_worker.py", "--pool", "pmf", "--type", "process")
        site.start("worker", *worker)
        yield site
    finally:
        site.stop()


def run_nightly(site: Site, *options: str) -> None:
    timeout = str(WAIT_SECONDS - 50)
    command = (*PREFECT, "deployment", "run", "etl/nightly", *options)
    said = site.run(*command, "--watch", "--watch-timeout", timeout)
    assert "Completed" in said, site.read_logs()
    # a night without new data has no report
    recorded = (
        "SELECT count(*) FROM task_run WHERE state_type = 'COMPLETED' AND name NOT LIKE 'report-%'"
    )
    n_runs = site.query("SELECT count(*) FROM flow_run WHERE state_type = 'COMPLETED'")[0]
    # the server stores task runs a little later than the run that they belong to
    site.wait_for(lambda: site.query(recorded)[0] >= n_runs * len(STAGES))


def test_nightly__makes_a_live_model(site: Site) -> None:
    config = site.environment["PMF_CONFIG"]
    run_nightly(site)
    completed = "SELECT name FROM task_run WHERE state_type = 'COMPLETED'"
    site.wait_for(lambda: len(site.query(completed)) > len(STAGES))
    states = site.query("SELECT state_type FROM task_run")
    names = site.query("SELECT name FROM task_run")
    assert states == ["COMPLETED"] * len(names), site.read_logs()
    assert sorted(name.rsplit("-", 1)[0] for name in names) == sorted([*STAGES, "report"])
    live = read_live(Path(config))
    assert live.kind == "model"
    assert json.loads(site.run(*PMF, "status", config, "--json"))["current"] is True
    traced = json.loads(site.run(*PMF, "log", config, "--json"))
    assert traced[0]["reference"]["digest"] == live.digest
    answer = json.loads(site.run(*PMF, "query", config, "m0002 given m0001=5", "--json"))
    assert sum(item["probability"] for item in answer["levels"]) == pytest.approx(1)


def test_nightly__is_scheduled(site: Site) -> None:
    scheduled = "SELECT count(*) FROM flow_run WHERE auto_scheduled AND state_type = 'SCHEDULED'"
    # the server looks for new schedules every few seconds, and for all of them once a minute
    deadline = time.monotonic() + 90
    while not site.query(scheduled)[0] and time.monotonic() < deadline:
        time.sleep(1)
    assert site.query(scheduled)[0] > 0, (
        f"the server creates no scheduled runs, see its log:\n{site.read_logs()}"
    )
    names = "SELECT name FROM flow_run WHERE auto_scheduled AND state_type = 'SCHEDULED'"
    # the worker names them
    named = ("nightly-pipeline-2", "weekly-pipeline-2")
    site.wait_for(lambda: all(name.startswith(named) for name in site.query(names)))
    assert any(name.startswith(named[0]) for name in site.query(names))


def test_nightly__on_a_running_scheduler_gives_the_same_model(site: Site) -> None:
    run_nightly(site)
    config = write_pipeline(site.folder / "on-dask")
    address = f"tcp://127.0.0.1:{find_free_port()}"
    port = address.rsplit(":", 1)[1]
    quiet = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0")
    site.start("dask-scheduler", *DASK, "scheduler", *quiet, "--port", port)
    site.start(
        "dask-worker", *DASK, "worker", address, *quiet, "--nworkers", "2", "--nthreads", "1"
    )
    assert json.loads(site.run(sys.executable, "-c", FINISHED, address)) == []
    run_nightly(
        site,
        *("--param", f"config={config}"),
        *("--job-variable", f"env={json.dumps({'PMF_DASK_ADDRESS': address})}"),
    )
    finished = set(json.loads(site.run(sys.executable, "-c", FINISHED, address)))
    # EM is too little work here to ask a worker
    assert {"count-fold", "evaluate-score-group"} <= finished, finished
    assert set(site.query("SELECT state_type FROM task_run")) == {"COMPLETED"}
    assert read_live(config).digest == read_live(Path(site.environment["PMF_CONFIG"])).digest
