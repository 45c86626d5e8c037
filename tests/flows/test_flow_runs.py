"""Flow runs as Prefect has them: states, names, logs and artifacts, under one server."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from prefect import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterStartTime,
    LogFilter,
    LogFilterFlowRunId,
)
from prefect.logging.handlers import APILogWorker
from prefect.states import Scheduled

from pmflib.base import ConfigError, QualityError
from pmflib.store import Store, list_records
from pmflib_flows.crowd.crowd_flow import crowd_flow
from pmflib_flows.etl import etl, fit_flow, ingest_flow, marginals_flow
from pmflib_flows.pipeline_flow import pipeline_flow
from pmflib_flows.scheduled_runs import name_scheduled_runs
from pmflib_flows.scoring.score_flow import score_flow
from pmflib_tasks.config import PipelineConfig, load_config
from pmflib_tasks.prefect_runs import find_flow_run_id
from pmflib_tasks.stage import stage
from pmflib_tasks.steps import Walk
from tests.pipelines import as_wide, draw_codes, make_schema
from tests.prefect_server import serve_prefect, wait_until

ROOT = Path(__file__).parents[2]
FLOWS = [etl, ingest_flow, marginals_flow, fit_flow, score_flow, crowd_flow]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Folder with a pipeline of 400 good rows and two that do not fit; and one whose configuration does not read."""
    home = tmp_path_factory.mktemp("flow runs")
    schema = make_schema(3, 2, 4)
    schema.save(home / "schema.json")
    (home / "a.csv").write_text(as_wide(draw_codes(400, schema.cardinalities)) + "7,0,0\n1,1\n")
    # a file that was written just now may change within the resolution of its times
    os.utime(home / "a.csv", (1e9, 1e9))
    (home / "nightly.toml").write_text(
        'name = "Nightly 2"\n[source]\npath = "a.csv"\nlayout = "wide"\n[model]\nrank = 2\n'
        "[em]\nmax_passes = 3\n[cluster]\nworkers = 1\n"
    )
    (home / "broken.toml").write_text("[source]\npath = 3\n")
    return home


@pytest.fixture(scope="module")
def api(home):
    """Address of a Prefect server that keeps the log of runs, too."""
    from prefect.logging.configuration import setup_logging
    from prefect.settings import PREFECT_LOGGING_LEVEL, temporary_settings

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_LOGGING_LEVEL", "INFO")
        patch.setenv("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
        with (
            serve_prefect(home / "prefect") as url,
            temporary_settings({PREFECT_LOGGING_LEVEL: "INFO"}),
        ):
            setup_logging()
            yield url


def refuse(*arguments):
    raise AssertionError("nothing is new")


def read_runs(since):
    """Flow runs that have started since a time."""
    started = FlowRunFilterStartTime.model_validate({"after_": since})
    with get_client(sync_client=True) as client:
        return client.read_flow_runs(flow_run_filter=FlowRunFilter(start_time=started))


@pytest.fixture(scope="module")
def ran(home, api):
    """Facts of a run, its flow run, its log, its artifacts and its task runs."""
    since = datetime.now(UTC)
    facts = etl(str(home / "nightly.toml"))
    APILogWorker.drain_all(timeout=30)
    (run,) = read_runs(since)
    of_run = FlowRunFilter(id=FlowRunFilterId(any_=[run.id]))
    only = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run.id]))
    with get_client(sync_client=True) as client:

        def read_log():
            lines = [line.message for line in client.read_logs(only, limit=200)]
            return lines if any("Finished in state" in line for line in lines) else None

        def read_tasks():
            tasks = client.read_task_runs(flow_run_filter=of_run)
            return tasks if all(task.state_name == "Completed" for task in tasks) else None

        lines, tasks = wait_until(read_log), wait_until(read_tasks)
        artifacts = {each.key: each for each in client.read_artifacts(flow_run_filter=of_run)}
    return facts, run, lines, artifacts, tasks


QUIET_NIGHT = """
import sys
sys.argv = ["pmf", "run", sys.argv[1], "--json"]
from pmflib_flows.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
heavy = {"numba", "scipy", "zarr", "distributed", "dask", "pandas", "openlineage", "pyarrow.compute"}
print(sorted(heavy & sys.modules.keys()), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def quiet(ran, home):
    """Facts of the next night, in which nothing is new."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pmflib.cluster.workers.start_workers", refuse)
        patch.setattr("pmflib.ingest.sources.digest_source", refuse)
        patch.setattr("pmflib.ingest.sources.open_source", refuse)
        return etl(str(home / "nightly.toml"))


def test_quiet_night__starts_no_worker_and_reads_no_source(ran, quiet):
    assert quiet["outcome"] == "unchanged"
    assert quiet["rows"] == ran[0]["rows"]


def test_quiet_night__imports_nothing_heavy(quiet, home, api):
    command = [sys.executable, "-c", QUIET_NIGHT, str(home / "nightly.toml")]
    environment = os.environ | {"PREFECT_API_URL": api}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcome"] == "unchanged"
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_flow__a_bad_configuration_is_a_failed_run_with_a_name(home, api, flow):
    since = datetime.now(UTC)
    with pytest.raises(ConfigError, match="model"):
        flow(str(home / "broken.toml"))
    (run,) = read_runs(since)
    assert (run.name, run.state_name) == ("broken", "Failed")
    assert "model" in run.state.message


def test_flow__a_configuration_that_is_not_there(home, api):
    since = datetime.now(UTC)
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        etl(str(home / "nowhere.toml"))
    (run,) = read_runs(since)
    assert (run.name, run.state_name) == ("nowhere", "Failed")


def test_flow__held_back_has_a_state_of_its_own(home, api, monkeypatch):
    def stop_on_findings(*arguments):
        raise QualityError("v1 has moved by 0.4; the limit is 0.25")

    monkeypatch.setattr(Walk, "reach", stop_on_findings)
    since = datetime.now(UTC)
    with pytest.raises(QualityError, match="v1 has moved"):
        etl(str(home / "nightly.toml"))
    (run,) = read_runs(since)
    assert run.name.startswith("Nightly 2-")
    assert (run.state_type.value, run.state_name) == ("FAILED", "HeldBack")
    assert run.state.message == "v1 has moved by 0.4; the limit is 0.25"


def test_log__says_what_the_command_line_says(ran):
    facts, _, lines, _, _ = ran
    text = "\n".join(lines)
    (rows,) = re.findall(r"^rows: .*", text, re.M)
    assert {"402", "400", "2"} <= {*rows.replace(",", " ").split()}
    for reason, n in facts["rows"]["reasons"].items():
        assert re.search(rf"{reason}\W+{n}\b", text)
    # of the progress, and of the tables
    assert re.search(r"^refine: \d of \d", text, re.M)
    assert re.search(r"passes\W+\d", text)
    assert "log_prob_per_cell" in text
    assert f"reason: {facts['reason']}" in text
    assert "outcome: promoted" in text
    # lines of tables are for terminals
    assert not re.search("[\u2500-\u257f]", text)


def test_artifacts__name_the_pipeline_and_the_run(ran):
    facts, _, _, artifacts, _ = ran
    stems = {"dataset", "counts", "start", "model", "scores", "run"}
    assert {re.sub(r"^pmf-nightly-2-[0-9a-f]{6}-", "", key) for key in artifacts} >= stems
    (run,) = [each for key, each in artifacts.items() if key.endswith("-run")]
    assert run.description.startswith("run ")
    assert facts["reason"] in run.data


def test_artifacts__say_what_the_report_of_the_run_says_first(ran, home):
    facts, _, _, artifacts, _ = ran
    (shown,) = [each for key, each in artifacts.items() if key.endswith("-report")]
    page = home / "store" / "reports" / "Nightly 2" / f"{facts['run']:06}.html"
    assert shown.type == "markdown"
    assert page.name in shown.data
    assert "402" in shown.data
    assert "Nightly 2" in page.read_text("utf-8")
    # a run with nothing new leaves none
    records = list_records(Store(home / "store"), "Nightly 2")
    quiet = {f"{record.number:06}.html" for record in records if record.outcome == "unchanged"}
    assert not quiet & {each.name for each in page.parent.iterdir()}


def test_events__have_the_id_of_the_flow_run(ran, home):
    _, run, _, _, _ = ran
    lines = (home / "store" / "lineage" / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    mine = [event for event in events if event["run"]["runId"] == str(run.id)]
    assert [event["eventType"] for event in mine] == ["START", "COMPLETE"]


def test_flow__every_stage_is_a_task(ran):
    *_, tasks = ran
    stages = {"ingest", "count", "fit", "refine", "evaluate", "publish"}
    assert {task.name.split("-")[0] for task in tasks} >= stages
    assert {task.run_count for task in tasks} == {1}


@pytest.mark.parametrize(("error", "tries"), [(ConnectionError, 2), (ConfigError, 1)])
def test_stage__prefect_retries_what_may_succeed(home, api, monkeypatch, error, tries):
    monkeypatch.setattr("pmflib_tasks.stage.RETRY_SECONDS", (0, 0))
    runs = []

    @stage(name="flaky")
    def flaky(config: PipelineConfig) -> int:
        runs.append(find_flow_run_id())
        if len(runs) < tries or tries == 1:
            raise error("no answer")
        return len(runs)

    @pipeline_flow(name="flaky")
    def flow(config: str) -> int:
        return flaky(load_config(config))

    with nullcontext() if tries > 1 else pytest.raises(error):
        assert flow(str(home / "nightly.toml")) == tries
    assert len(runs) == tries
    only = FlowRunFilter(id=FlowRunFilterId(any_=[UUID(runs[0])]))
    with get_client(sync_client=True) as client:
        (task,) = wait_until(lambda: client.read_task_runs(flow_run_filter=only))
    assert task.name.startswith("flaky")


def test_flow__each_dependency_is_one_edge(ran, api):
    _, run, *_ = ran
    with urllib.request.urlopen(f"{api}/flow_runs/{run.id}/graph-v2") as answer:
        nodes = [node for _, node in json.load(answer)["nodes"]]
    parents = {node["label"].rsplit("-", 1)[0]: node["parents"] for node in nodes}
    names = {node["id"]: node["label"].rsplit("-", 1)[0] for node in nodes}
    found = {stage: [names[each["id"]] for each in given] for stage, given in parents.items()}
    # what another parent was made from is no parent of its own
    assert found["count"] == ["ingest"]
    assert found["refine"] == ["fit"]
    assert sorted(found["publish"]) == ["evaluate", "marginals", "quality"]


def test_assets__have_their_lineage(ran, api):
    def read_events():
        wanted = {"filter": {"event": {"prefix": ["prefect.asset.materialization"]}}}
        asked = urllib.request.Request(
            f"{api}/events/filter",
            json.dumps(wanted).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked) as answer:
            events = json.load(answer)["events"]
        made = {each["resource"]["prefect.resource.id"].rpartition("/")[2]: each for each in events}
        return made if {"dataset", "counts", "model", "scores"} <= made.keys() else None

    made = wait_until(read_events)
    of = [each["prefect.resource.id"].rpartition("/")[2] for each in made["model"]["related"]]
    assert {"dataset", "counts", "start"} <= {*of}
    assert len(made["model"]["payload"]["digest"]) == 24


def test_name_scheduled_runs__after_deployment_pipeline_and_time(api, home):
    with get_client(sync_client=True) as client:
        flow_id = client.create_flow_from_name("etl")
        runs = {}
        for name, tags, config in (
            ("nightly", ["pmf"], "nightly.toml"),
            ("weekly", ["pmf"], "broken.toml"),
            ("other", [], "nightly.toml"),
        ):
            deployment = client.create_deployment(
                flow_id, name, tags=tags, parameters={"config": str(home / config)}
            )
            runs[name] = client.create_flow_run_from_deployment(
                deployment, state=Scheduled(scheduled_time=datetime(2100, 1, 2, 3, 4, tzinfo=UTC))
            )
        expected = ["nightly-Nightly 2-2100-01-02-0304", "weekly-broken-2100-01-02-0304"]
        assert name_scheduled_runs(client) == expected
        assert name_scheduled_runs(client) == expected
        names = {name: client.read_flow_run(run.id).name for name, run in runs.items()}
    assert names == {"nightly": expected[0], "weekly": expected[1], "other": runs["other"].name}
