"""Plans of runs: the memory that a run checks, and the times that earlier runs have recorded."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from pmflib.base import ConfigError, MemoryPlanError, StoreError
from pmflib.cluster import ClusterMemory, WorkerMemory, start_workers, workers
from pmflib.counts import choose_n_runs, plan_counting
from pmflib.schema import Schema
from pmflib.store import find_last_run
from pmflib_flows.cli import app
from pmflib_tasks.config import make_config
from pmflib_tasks.planning import PlannedWorkers, plan_run
from pmflib_tasks.planning.planning import check_run_width, check_width, list_plans
from tests.flows.nights import draw_ratings
from tests.pipelines import make_schema

LARGE = PlannedWorkers.assume(2, 1, 64 << 30)


def make_pipeline(**sections):
    known = {"source": {"path": "x.csv", "layout": "wide"}, "model": {"rank": 2}}
    return make_config({**known, "store": {"path": "s"}, **sections})


def run_plan(*words):
    return CliRunner().invoke(app, ["plan", *map(str, words)])


@pytest.fixture
def pipeline(nights):
    made = nights(6)
    made.deliver("a.csv", draw_ratings(300, 6), range(300))
    return made


def test_plan_run__times_are_those_of_the_run_that_did_all_in_proportion_to_rows_and_passes(
    pipeline,
):
    pipeline.run()
    record = find_last_run(pipeline.store, "pipeline")
    pipeline.run()
    facts: Any = record.facts
    rows, passes = facts["rows"]["rows_in"], facts["model"]["passes"]
    found = plan_run(pipeline.config, LARGE)
    assert found.rows == rows
    seconds = {stage.stage: stage.seconds for stage in found.stages}
    assert set(seconds) >= {"ingest", "count", "fit", "refine", "evaluate"}
    assert seconds["refine"] == pytest.approx(record.seconds["refine"])
    more = plan_run(pipeline.config, LARGE, rows=3 * rows, passes=2 * passes)
    grown = {stage.stage: stage.seconds for stage in more.stages}
    assert grown["refine"] == pytest.approx(6 * record.seconds["refine"])
    assert grown["count"] == pytest.approx(3 * seconds["count"])
    assert grown["fit"] == seconds["fit"]
    # files that have grown have more rows
    copy = (pipeline.log / "a.csv").read_text().replace("u", "x").replace("xser", "user")
    (pipeline.log / "b.csv").write_text(copy)
    assert plan_run(pipeline.config, LARGE).rows == pytest.approx(2 * rows, rel=0.01)


def test_plan__a_small_run_works_in_one_thread_unless_workers_are_asked_for(pipeline):
    first = pipeline.run()
    assert first["where"].startswith("one thread")
    small = json.loads(run_plan(pipeline.path, "--json").output)
    assert (small["threads"], small["where"]) == (1, first["where"])
    assert {stage["tasks"] for stage in small["stages"]} == {None}
    with pytest.MonkeyPatch.context() as patch:
        started = []

        def start(cluster):
            started.append(cluster)
            return start_workers(cluster)

        patch.setattr(workers, "start_workers", start)
        pipeline.configure(cluster={"always": True}, em={"max_passes": 7})
        always = pipeline.run()
    assert len(started) == 1
    assert "Dask workers" in always["where"]
    planned = json.loads(run_plan(pipeline.path, "--json").output)
    assert planned["where"] == always["where"]
    tasks = {stage["stage"]: stage["tasks"] for stage in planned["stages"]}
    assert (tasks["count"], tasks["refine"]) == (8, 1)


def test_plan__before_the_first_run(pipeline):
    done = run_plan(pipeline.path, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert (found["rows"], found["seconds"]) == (None, None)
    assert any("no run" in note for note in found["notes"])
    assert not (pipeline.folder / "store").exists()
    assert run_plan(pipeline.path).exit_code == 0


@pytest.mark.parametrize("stage", ["count", "refine"])
def test_plan__what_does_not_fit_is_refused_by_the_check_of_the_run(pipeline, stage):
    plan = list_plans(pipeline.config, make_schema(*[5] * 6), 2)[stage]
    least = plan(1).needed
    client = LARGE.memory.client

    def make_workers(spare):
        memory = ClusterMemory((WorkerMemory("small", 1, spare),), client, False)
        return PlannedWorkers(memory, 2)

    def refused(spare):
        found = plan_run(pipeline.config, make_workers(spare))
        return [text.partition(":")[0] for text in found.refusals]

    assert stage not in refused(least)
    assert stage in refused(least - 1)
    with pytest.raises(MemoryPlanError) as caught:
        make_workers(least - 1).memory.check(plan)
    assert f"{stage}: {caught.value}" in plan_run(pipeline.config, make_workers(least - 1)).refusals


def test_plan__exit_code_and_options(pipeline):
    assert run_plan(pipeline.path, "--memory", "64GiB").exit_code == 0
    small = run_plan(pipeline.path, "--memory", "400MiB", "--workers", 3)
    assert small.exit_code == 5
    assert "memory limit" in small.output
    for words in (["--memory", "much"], ["--workers", 3]):
        assert isinstance(run_plan(pipeline.path, *words).exception, ConfigError)


def test_plan_accuracy__more_samples_for_a_smaller_error_by_the_live_model(pipeline):
    assert isinstance(run_plan(pipeline.path, "--accuracy", 0.02).exception, StoreError)
    pipeline.run()

    def plan(accuracy):
        done = run_plan(pipeline.path, "--accuracy", accuracy, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    coarse, fine = plan(0.04), plan(0.02)
    assert coarse["now"] == fine["now"] == 300
    assert coarse["samples"] < fine["samples"]
    # the error that the samples of today leave is the accuracy for which they suffice
    assert plan(fine["error"])["samples"] == pytest.approx(300, rel=0.02)
    refused = run_plan(pipeline.path, "--accuracy", 0.02, "--rows", 1000)
    assert isinstance(refused.exception, ConfigError)


def test_check_width__names_the_widest_variables():
    schema = Schema.from_cardinalities([30, 500, 20])
    needed = plan_counting(550, 1, choose_n_runs(1, 1)).join_client().needed
    check_width(schema, ClusterMemory.here(needed))
    with pytest.raises(MemoryPlanError, match=r"'v1' \(500\), 'v0' \(30\), 'v2' \(20\)"):
        check_width(schema, ClusterMemory.here(needed - 1))


def test_check_run_width__workers_on_this_machine_and_none_elsewhere():
    schema = Schema.from_cardinalities([30, 500, 20])
    here = {"workers": 1, "memory_limit": 1 << 20}
    for processes in (False, True):
        with pytest.raises(MemoryPlanError, match="memory_limit"):
            check_run_width(make_pipeline(cluster=here | {"processes": processes}), schema)
    check_run_width(make_pipeline(cluster=here | {"address": "tcp://127.0.0.1:1"}), schema)
    check_run_width(make_pipeline(cluster=here | {"memory_limit": 1 << 33}), schema)
