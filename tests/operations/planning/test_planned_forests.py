from dataclasses import replace

import pytest

import pmflib as pmf
from benchmarks.pipeline.cost_model import FIT, plan_tasks_by_stage, run_counted, write_log
from pmflib.cluster.memory import OWN_BYTES
from pmflib.em.forests import samples
from pmflib.fitting.dependence import plan_forest_passes as plan_passes
from pmflib.store.artefacts import Store
from pmflib.store.dataset import list_dataset_blocks
from pmflib_tasks.config import load_config
from pmflib_tasks.operations.planning.forest_stages import count_searches
from pmflib_tasks.operations.planning.learning import correct_speeds
from pmflib_tasks.operations.planning.sizes import ClusterSize, FitSize, ForestSize, LogSize
from pmflib_tasks.operations.planning.speeds import Speeds
from pmflib_tasks.operations.planning.whole_run import RunPlan
from tests.pipelines import make_schema

FORCED, OPEN = ForestSize(is_forced=True), ForestSize(is_forced=False)


def find_stage(plan, name):
    return next(stage for stage in plan.stages if stage.stage == name)


def run_forests(folder, n_workers):
    """Run a pipeline with forests; its configuration, its plan, and what was counted."""
    log = write_log(folder, 24_000, 2, named=False, n_variables=12)
    path = folder / "pipeline.toml"
    path.write_text(path.read_text().replace("[em]", 'dependence = "tree"\n[em]'))
    config, schema = load_config(path), pmf.Schema.load(folder / "schema.json")
    fit = replace(FIT, forests=FORCED, schema=schema)
    plan = RunPlan(log, fit, ClusterSize(n_workers), Speeds())
    return config, plan, run_counted(config, n_workers)


@pytest.mark.parametrize("n_side_by_side", [8, pytest.param(20, marks=pytest.mark.slow)])
def test_plan__counts_the_tasks_of_a_run_with_forests(tmp_path, monkeypatch, n_side_by_side):
    # a search on few samples, so that passes over all of them follow
    monkeypatch.setattr("pmflib.fitting.dependence.START_ROWS", 200)
    monkeypatch.setattr("pmflib.fitting.dependence.SEARCH_WORK", 1)
    monkeypatch.setattr(samples, "PAIR_BYTES", n_side_by_side * 8 * 60**2)
    config, plan, run = run_forests(tmp_path / "log", 2)
    assert plan_tasks_by_stage(plan) == run.tasks
    assert find_stage(plan, "forests").tasks > 0
    # with "auto" there may be none of them
    opened = replace(plan, fit=replace(plan.fit, forests=OPEN))
    row = find_stage(opened, "forests")
    assert row.least.tasks == 0
    assert row.tasks == find_stage(plan, "forests").tasks
    store = Store(config.resolve(config.store.path))
    dataset = next(each.reference for each in store.entries() if each.reference.kind == "dataset")
    blocks = list_dataset_blocks(store, dataset, config.fold_split.train)
    checked = plan_passes(pmf.StoredSamples(blocks, plan.fit.schema), 20, 1, 1)
    assert row.worker_memory >= OWN_BYTES + checked.needed


def make_plan(forests, *, rows=10**8, rank=20, cardinality=5, **fit):
    schema = make_schema(*[cardinality] * 30)
    log = LogSize(rows, rows, 30, schema.n_levels, 0.9, 10, 60 * rows, 60 * rows)
    size = FitSize(rank, forests=forests, schema=schema, **fit)
    return RunPlan(log, size, ClusterSize(16), Speeds())


def test_plan__forests_are_a_row_of_the_table_and_may_be_nothing():
    forced, opened = make_plan(FORCED), make_plan(OPEN)
    names = [each.stage for each in opened.stages]
    assert names == ["read", "sort", "count", "fit", "refine", "forests", "evaluate"]
    row, certain = find_stage(opened, "forests"), find_stage(forced, "forests")
    assert certain.least is None
    assert row.least.tasks == 0
    assert row.least_seconds < 1 < row.wall_seconds == certain.wall_seconds
    assert opened.least_seconds < opened.wall_seconds


def test_plan__gaps_make_passes_with_forests_dearer():
    rows = []
    for observed in (1.0, 0.9, 0.5):
        plan = make_plan(FORCED)
        rows.append(find_stage(replace(plan, log=replace(plan.log, observed=observed)), "forests"))
    seconds = [row.worker_seconds for row in rows]
    assert seconds == sorted(seconds)
    # a pass of EM is much cheaper
    assert seconds[0] > 10 * find_stage(make_plan(FORCED, runs=1), "refine").worker_seconds


def test_plan__few_samples_are_searched_and_not_passed_over():
    row = find_stage(make_plan(FORCED, rows=10_000), "forests")
    assert row.tasks == 0
    assert row.client_seconds > 0


def test_plan__forests_that_are_too_large_are_not_tried_unless_asked_for():
    opened, forced = (make_plan(size, cardinality=80) for size in (OPEN, FORCED))
    assert "forests" not in [each.stage for each in opened.stages]
    assert any(each.startswith("forests: not tried") for each in opened.describe())
    assert find_stage(forced, "forests").wall_seconds > 0


def test_correct_speeds__says_nothing_of_em_where_its_stage_had_forests():
    plain, forced = make_plan(None), make_plan(FORCED)
    seconds = {"refine": 2 * find_stage(plain, "refine").processor_seconds}
    assert correct_speeds(plain, seconds).em_ns > plain.speeds.em_ns
    assert correct_speeds(forced, seconds) == forced.speeds


def test_count_searches__their_distances_double():
    assert [count_searches(n) for n in (0, 1, 2, 3, 6, 7, 14, 15, 50)] == [
        0,
        1,
        1,
        2,
        2,
        3,
        3,
        4,
        5,
    ]
