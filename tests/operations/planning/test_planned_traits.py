import json
import tracemalloc
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import pmflib as pmf
from benchmarks.pipeline.cost_model import plan_tasks_by_stage, run_counted
from pmflib.cluster.memory import OWN_BYTES
from pmflib.fitting.traits import plan_fit_traits
from pmflib.store import sample_blocks
from pmflib.store.artefacts import Store
from pmflib.store.dataset import list_dataset_blocks
from pmflib_flows.cli import app
from pmflib_tasks.config import load_config
from pmflib_tasks.operations.planning.learning import correct_speeds
from pmflib_tasks.operations.planning.pipeline_sizes import LastRun, measure_fit, measure_log
from pmflib_tasks.operations.planning.sizes import ClusterSize, FitSize, LogSize, TraitSize
from pmflib_tasks.operations.planning.speeds import Speeds
from pmflib_tasks.operations.planning.trait_stages import list_tried
from pmflib_tasks.operations.planning.whole_run import RunPlan
from tests.em.traits.planted_traits import draw_samples, plant_traits
from tests.pipelines import as_wide, make_schema

N_ROWS = 900
SCHEMA = make_schema(4, 4, 4, 4, 4, 4)
NEVER_RUN = LastRun()


def write_log(folder, method, rank):
    codes, _ = draw_samples(plant_traits([4] * 6, 1, 1), N_ROWS, 2, missing=0.2)
    SCHEMA.save(folder / "schema.json")
    for index in range(3):
        (folder / f"part-{index}.csv").write_text(as_wide(codes[index::3]))
    (folder / "pipeline.toml").write_text(
        '[source]\npath = "part-*.csv"\nlayout = "wide"\n[schema]\nfile = "schema.json"\n'
        f'[model]\nrank = {rank}\nmethod = "{method}"\n[em]\nmax_passes = 3\n'
    )
    return load_config(folder / "pipeline.toml")


def plan_pipeline(config, n_workers, last=NEVER_RUN):
    log, _ = measure_log(config, SCHEMA, NEVER_RUN)
    fit, notes = measure_fit(config, SCHEMA, last)
    log = replace(log, rows=N_ROWS, samples=N_ROWS)
    return RunPlan(log, fit, ClusterSize(n_workers), Speeds()), notes


def find_stage(plan, name):
    return next(stage for stage in plan.stages if stage.stage == name)


def find_traits(config):
    """Summary of the fit of traits that a store has."""
    entries = Store(config.resolve(config.store.path)).entries()
    return next(each.summary for each in entries if "n_traits" in each.summary)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "rank", "n_workers"), [("traits", 20, 1), ("traits", 20, 3), ("compare", 3, 2)]
)
def test_plan__counts_the_tasks_of_a_run_with_traits(
    tmp_path, monkeypatch, method, rank, n_workers
):
    # a group for each block
    monkeypatch.setattr(sample_blocks, "MIN_GROUP", 1)
    config = write_log(tmp_path, method, rank)
    before, notes = plan_pipeline(config, n_workers)
    run = run_counted(config, n_workers)
    found = find_traits(config)
    known = LastRun(n_traits=found["n_traits"], trait_passes=found["passes"])
    after, notes_after = plan_pipeline(config, n_workers, known)
    # what a run has chosen, the plan of the next one knows; before, it knows the ends
    planned = plan_tasks_by_stage(after)
    stages = ["fit_traits", "choose"] if method == "compare" else list(planned)
    assert {name: planned[name] for name in stages} == {name: run.tasks[name] for name in stages}
    row = find_stage(before, "traits")
    assert row.least.tasks < row.tasks
    assert row.least.tasks <= run.tasks["fit_traits"] <= row.tasks
    assert row.least_seconds < find_stage(after, "traits").wall_seconds <= row.wall_seconds
    assert find_stage(after, "traits").least is None
    assert any("yet to be chosen" in note for note in notes)
    assert any("the last run has chosen" in note for note in notes_after)


@pytest.mark.slow
def test_plan__memory_of_traits_is_what_a_run_checks_and_more_than_it_takes(tmp_path):
    config = write_log(tmp_path, "traits", 20)
    run_counted(config, 1)
    store = Store(config.resolve(config.store.path))
    dataset = next(each.reference for each in store.entries() if each.reference.kind == "dataset")
    blocks = list_dataset_blocks(store, dataset, config.fold_split.train)
    samples = pmf.StoredSamples(blocks, SCHEMA)
    plan, _ = plan_pipeline(config, 1)
    row, checked = find_stage(plan, "traits"), plan_fit_traits(samples, n_states=20)
    # observed cells are those of the first rows, of all alike
    assert row.worker_memory >= OWN_BYTES + 0.98 * checked.needed
    assert row.client_memory >= 0.98 * sum(checked.client_parts.values())
    tracemalloc.start()
    try:
        pmf.fit_traits(samples, n_states=20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= checked.join_client().needed
    assert peak <= row.worker_memory + row.client_memory - OWN_BYTES


def make_plan(traits, *, rows=10**8, client_memory=16 << 30):
    schema = make_schema(*[5] * 30)
    log = LogSize(rows, rows, 30, schema.n_levels, 0.9, 10, 60 * rows, 60 * rows)
    fit = FitSize(20, traits=traits, schema=schema)
    return RunPlan(log, fit, ClusterSize(16, client_memory=client_memory), Speeds())


COMPARED, ALONE = (TraitSize(is_compared, (0, 16), (8, 32)) for is_compared in (True, False))


def test_plan__traits_are_rows_of_the_table():
    both, alone = ([each.stage for each in make_plan(size).stages] for size in (COMPARED, ALONE))
    assert both == ["read", "sort", "count", "fit", "refine", "traits", "choose", "evaluate"]
    assert alone == ["read", "sort", "count", "traits", "evaluate"]
    for plan in (make_plan(COMPARED), make_plan(ALONE)):
        assert 0 < plan.least_seconds < plan.wall_seconds
        assert plan.to_json()["stages"][-1]["least"]["stage"] == "evaluate"


def test_plan__work_of_traits_grows_with_the_cells_and_the_dimensions():
    few = TraitSize(False, (2, 2), (8, 8))
    rows = [
        find_stage(make_plan(size, rows=n), "traits")
        for size, n in ((few, 10**8), (few, 10**9), (replace(few, dimensions=(16, 16)), 10**8))
    ]
    assert rows[1].worker_seconds == pytest.approx(10 * rows[0].worker_seconds, rel=0.05)
    # 1 + .2 x 16 to 1 + .2 x 2
    assert rows[2].worker_seconds == pytest.approx(3 * rows[0].worker_seconds, rel=0.05)
    assert rows[2].client_seconds > rows[0].client_seconds
    assert all(row.least is None for row in rows)


def test_plan__traits_that_do_not_fit_are_left_out_where_they_are_compared():
    compared, alone = (make_plan(size, client_memory=600 << 20) for size in (COMPARED, ALONE))
    assert "traits" not in [each.stage for each in compared.stages]
    assert any(each.startswith("traits: not fitted") for each in compared.describe())
    assert compared.fits
    assert any(each.startswith("does not fit: traits needs") for each in alone.describe())


def test_plan__prints_both_ends_of_a_pipeline_with_traits(tmp_path):
    write_log(tmp_path, "compare", 3)
    words = ["plan", str(tmp_path / "pipeline.toml"), "--rows", "1e9", "--workers", "20"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    index = next(n for n, line in enumerate(lines) if line.startswith(" traits"))
    assert lines[index + 1].startswith("   up to")
    assert " to " in next(line for line in lines if line.startswith("in all:"))
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert found["fit"]["traits"]["dimensions"] == [0, 16]
    assert "schema" not in found["fit"]
    assert found["least_seconds"] < found["wall_seconds"]


def test_with_rank__of_traits_alone_is_the_number_of_states():
    fits = (FitSize(20, traits=size).with_rank(7) for size in (COMPARED, ALONE))
    assert [(fit.rank, fit.traits.n_states) for fit in fits] == [(7, "auto"), (7, 7)]


def test_correct_speeds__by_traits_whose_passes_are_known():
    known, open_ = (make_plan(size) for size in (TraitSize(False, (4, 4), (16, 16)), ALONE))
    seconds = {"fit_traits": 2 * find_stage(known, "traits").processor_seconds}
    speeds = correct_speeds(known, seconds)
    assert 2 < speeds.trait_ns / known.speeds.trait_ns < 2.2
    after = find_stage(replace(known, speeds=speeds), "traits").processor_seconds
    assert after == pytest.approx(seconds["fit_traits"], rel=1e-4)
    assert correct_speeds(open_, seconds) == open_.speeds


def test_list_tried__two_more_than_the_last_that_gained_then_other_shrinkages():
    assert list_tried(0) == [0, 1, 2]
    assert list_tried(2) == [0, 1, 2, 4, 8, 2, 2]
    assert list_tried(16) == [0, 1, 2, 4, 8, 16, 16, 16]
