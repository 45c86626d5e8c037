import pytest

from benchmarks.pipeline.cost_model import FIT, plan_tasks_by_stage, run_counted, write_log
from pmflib_tasks.config import load_config
from pmflib_tasks.operations.planning.sizes import ClusterSize
from pmflib_tasks.operations.planning.speeds import Speeds
from pmflib_tasks.operations.planning.whole_run import RunPlan


def compare(folder, n_rows, n_workers, *, named, n_files, n_variables):
    log = write_log(folder, n_rows, n_files, named=named, n_variables=n_variables)
    run = run_counted(load_config(folder / "pipeline.toml"), n_workers)
    plan = RunPlan(log, FIT, ClusterSize(n_workers), Speeds())
    planner = plan.planner
    whole = planner.gather(0, FIT.folds)
    # what a run decides, the plan knows: not about, but to the task, the block and the file
    assert plan_tasks_by_stage(plan) == run.tasks
    assert whole.n_blocks == run.n_blocks
    assert whole.n_bytes == run.block_bytes
    assert planner.count_sample_files() == run.files["samples"]
    assert run.files["spill"] == (7 * n_files if named else 0)
    # one for each file, each spill or chunk, each partition; list of spills, dataset, counts, start, model, scores
    others = 6 if named else 5
    spills = n_files if named else 0
    assert run.entries == n_files + spills + planner.shape.partitions + others
    # what is compressed is known about
    assert planner.spill_bytes == pytest.approx(run.disk_bytes["spill"], rel=0.1)
    assert planner.sample_bytes == pytest.approx(run.disk_bytes["samples"], rel=0.35)


@pytest.mark.parametrize(
    ("named", "n_workers", "n_files"), [(True, 2, 3), (False, 3, 2), (False, 1, 1)]
)
def test_plan__counts_what_a_run_does(tmp_path, named, n_workers, n_files):
    sizes = {"named": named, "n_files": n_files, "n_variables": 12}
    compare(tmp_path / "log", 120_000, n_workers, **sizes)


@pytest.mark.slow
@pytest.mark.parametrize("n_workers", [1, 2, 7, 16])
@pytest.mark.parametrize("named", [True, False])
def test_plan__counts_what_a_run_of_a_million_rows_does(tmp_path, named, n_workers):
    sizes = {"named": named, "n_files": 4, "n_variables": 30}
    compare(tmp_path / "log", 1_000_000, n_workers, **sizes)
