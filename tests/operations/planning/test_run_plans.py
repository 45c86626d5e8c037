import json
import re
from dataclasses import replace

import pytest

from pmflib_tasks.operations.planning.learning import correct_speeds
from pmflib_tasks.operations.planning.sizes import ClusterSize, FitSize, LogSize
from pmflib_tasks.operations.planning.speeds import Speeds
from pmflib_tasks.operations.planning.whole_run import RunPlan, show_bytes, show_seconds


def plan(rows=10**10, workers=1000, memory=16.0, fit=None, levels=150, **log):
    size = LogSize(rows, rows, 30, levels, 0.9, max(1, rows // 10**7), 60 * rows, 60 * rows, **log)
    return RunPlan(size, fit or FitSize(20), ClusterSize(workers, 1, int(memory * 2**30)), Speeds())


def test_run_plan__stages_in_order_and_shares_within_one():
    found = plan(identified=True)
    assert [stage.stage for stage in found.stages] == [
        "read",
        "sort",
        "count",
        "fit",
        "refine",
        "evaluate",
    ]
    for stage in found.stages:
        assert 0 <= stage.efficiency <= 1
        assert stage.wall_seconds >= 0
        assert stage.worker_seconds <= 1.001 * found.cluster.n_threads * stage.wall_seconds + 1e-9
    assert 0 < found.efficiency < 1


@pytest.mark.parametrize("stage", ["read", "count", "refine", "evaluate"])
def test_run_plan__ten_times_the_rows_take_ten_times_the_work(stage):
    small, large = (
        next(each for each in plan(n, 16, identified=True).stages if each.stage == stage)
        for n in (10**8, 10**9)
    )
    # what workers load is no work
    loading = 16 * Speeds().find_loading("ingest" if stage == "read" else stage)[1]
    expected = 10 * (small.worker_seconds - loading)
    assert large.worker_seconds - loading == pytest.approx(expected, rel=0.05)
    assert large.read_bytes == pytest.approx(10 * small.read_bytes, rel=0.05)


def test_run_plan__blocks_stay_where_it_says_they_would():
    short = plan(memory=0.8)
    assert not all(short.planner.keeps)
    least = short.planner.keeping_memory
    assert all(replace(short, cluster=replace(short.cluster, memory=least)).planner.keeps)
    below = replace(short, cluster=replace(short.cluster, memory=int(0.97 * least)))
    assert not all(below.planner.keeps)
    (sentence,) = (each for each in short.describe() if "do not stay" in each)
    n_workers = int(sentence.split(", or ")[1].split()[0].replace(",", ""))
    assert all(short.resize(n_workers).planner.keeps)


def test_run_plan__store_is_read_once_or_in_each_pass():
    kept, read = plan(memory=16), plan(memory=0.8)
    once, often = (
        next(each.read_bytes for each in one.stages if each.stage == "refine")
        for one in (kept, read)
    )
    assert often > 100 * once
    assert any("blocks stay" in sentence for sentence in kept.describe())


def test_run_plan__tables_of_wide_logs_are_saved_by_the_pairs_that_were_seen():
    size = LogSize(10**5, 943, 1682, 8410, 0.063, 1, 10**6, 10**6, layout="long")
    wide = RunPlan(size, FitSize(5), ClusterSize(4), Speeds())
    count, fit = (
        next(each for each in wide.stages if each.stage == name) for name in ("count", "fit")
    )
    seen = 943 * (1682 * 0.063) ** 2
    assert count.written_bytes == pytest.approx(2 * 16 * seen)
    assert fit.read_bytes == pytest.approx(14 / 16 * 16 * seen)
    dense = plan(rows=10**7)
    (count,) = (each for each in dense.stages if each.stage == "count")
    assert count.written_bytes == 2 * 16 * 8 * 150**2


def test_run_plan__what_does_not_fit_is_named_with_both_numbers():
    wide = plan(rows=10**6, workers=2, memory=1.0, levels=20_000)
    assert not wide.fits
    assert any("count needs" in sentence and "GiB" in sentence for sentence in wide.misfits)
    assert plan().fits


def test_run_plan__names_a_number_of_workers_that_is_enough():
    found = plan(rows=10**8)
    assert found.efficiency < 0.7
    best = found.find_efficient()
    assert best.cluster.workers < 1000
    assert best.efficiency >= 0.7 or best.cluster.workers == 1
    assert any(f"{best.cluster.workers:,} workers are at" in each for each in found.describe())


@pytest.mark.parametrize("rows", [10**5, 10**7, 10**9])
def test_run_plan__more_threads_of_a_worker_never_make_a_stage_slower(rows):
    """Threads without work ask nothing of the storage that a worker's threads share."""
    found = plan(rows=rows, workers=1, identified=True)
    before: dict[str, float] = {}
    for threads in (1, 2, 4, 16, 64, 256, 1000):
        cluster = replace(found.cluster, threads=threads, memory=10**15)
        for stage in replace(found, cluster=cluster).stages:
            assert stage.wall_seconds <= 1.0001 * before.get(stage.stage, float("inf"))
            before[stage.stage] = stage.wall_seconds


@pytest.mark.parametrize("workers", [1, 16, 250])
def test_run_plan__more_rows_are_never_cheaper(workers):
    before = 0.0
    for rows in (10**5, 3 * 10**5, 10**6, 10**7, 10**8):
        hours = plan(rows=rows, workers=workers, memory=64).worker_hours
        assert hours >= before
        before = hours


@pytest.mark.parametrize(("rows", "memory"), [(10**8, 16), (10**9, 0.8), (10**10, 4)])
@pytest.mark.parametrize("workers", [2, 250, 3000])
def test_find_efficient__is_never_dearer(rows, memory, workers):
    found = plan(rows=rows, workers=workers, memory=memory)
    best = found.find_efficient()
    assert best == found or best.worker_hours < found.worker_hours
    for sentence in found.describe():
        if sentence.startswith("workers: ") and " in place of " in sentence:
            proposed, now = re.findall(r"([\d,.]+) worker hours in place of ([\d,.]+)", sentence)[0]
            slower = "their time is work" in sentence
            assert not slower or float(proposed.replace(",", "")) <= float(now.replace(",", ""))


def test_find_cheapest__in_time_at_the_fewest_worker_hours():
    found = plan(rows=10**8, workers=50)
    slow, quick = found.resize(1).wall_seconds, found.resize(40).wall_seconds
    best = found.find_cheapest(quick)
    assert best.wall_seconds <= quick
    relaxed = found.find_cheapest(2 * slow)
    assert relaxed.worker_hours <= min(best.worker_hours, found.resize(1).worker_hours)
    assert found.find_cheapest(1.0) is None


def test_run_plan__few_packed_files_keep_few_threads_busy():
    fit = FitSize(20, passes=1, runs=1, start="random")
    found = plan(rows=10**9, workers=500, fit=fit, cut="not")
    assert any("100 is read by one task" in each for each in found.describe())


@pytest.mark.parametrize(
    "fit", [FitSize(1), FitSize(20, validation=0), FitSize(20, test=0), FitSize(5, 1)]
)
@pytest.mark.parametrize("rows", [1, 1000])
def test_run_plan__the_smallest_logs_have_one_too(rows, fit):
    found = plan(rows=rows, workers=3, fit=fit)
    assert found.wall_seconds > 0
    json.dumps(found.to_json(), allow_nan=False)
    assert found.describe()


def find_refine(then):
    return next(stage.processor_seconds for stage in then.stages if stage.stage == "refine")


def test_correct_speeds__a_run_that_took_longer_makes_the_next_longer():
    then = plan(rows=10**7, workers=2)
    speeds = correct_speeds(then, {"refine": 2 * find_refine(then), "count": 0.1})
    assert find_refine(replace(then, speeds=speeds)) == pytest.approx(2 * find_refine(then))
    assert 2 < speeds.em_ns / then.speeds.em_ns < 2.2
    assert speeds.count_share == then.speeds.count_share
    capped = correct_speeds(then, {"refine": 1e9})
    assert capped.em_ns == pytest.approx(5 * then.speeds.em_ns)


@pytest.mark.parametrize("rows", [10**4, 10**6])
def test_correct_speeds__more_rows_take_longer_at_most_in_proportion(rows):
    then = plan(rows=rows, workers=2)
    speeds = correct_speeds(then, {"refine": 3 * find_refine(then)})
    assert find_refine(replace(then, speeds=speeds)) == pytest.approx(3 * find_refine(then))
    later = replace(then, log=then.log.scale_to(10 * rows))
    grown = find_refine(replace(later, speeds=speeds)) / find_refine(later)
    assert 1.0 < grown < 4.5


@pytest.mark.parametrize("columns", [1, 3])
def test_run_plan__weights_make_counting_several_times_as_long(columns):
    bare, weighted = (plan(rows=10**8, design_columns=n).planner for n in (0, columns))
    assert 2 < weighted.count_row_seconds() / bare.count_row_seconds() < 10


def test_show_bytes_and_seconds():
    assert [show_bytes(n) for n in (0, 999, 3.8e11, 5.5e12)] == ["0 B", "999 B", "380 GB", "5.5 TB"]
    shown = [show_seconds(n) for n in (0.123, 42, 420, 12_600, 181_440)]
    assert shown == ["0.12 s", "42 s", "7 min", "3.5 h", "2.1 days"]
