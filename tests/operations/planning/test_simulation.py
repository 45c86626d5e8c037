from dataclasses import replace

import pytest

from benchmarks.pipeline.simulated_maps import Hitches, simulate_map
from pmflib_tasks.operations.planning.sizes import ClusterSize, FitSize, LogSize
from pmflib_tasks.operations.planning.speeds import Speeds
from pmflib_tasks.operations.planning.stage_costs import MapWork, time_maps
from pmflib_tasks.operations.planning.stages import Planner
from pmflib_tasks.operations.planning.task_counts import MapTasks

SPEEDS = Speeds()


def plan(rows, workers, rank=20):
    log = LogSize(rows, rows, 30, 150, 0.9, max(1, rows // 10**7), 60 * rows, 60 * rows)
    return Planner(log, FitSize(rank), ClusterSize(workers), SPEEDS)


@pytest.mark.parametrize(
    ("rows", "workers"), [(10**6, 1), (10**8, 16), (10**9, 100), (10**10, 1000), (10**10, 250)]
)
@pytest.mark.parametrize("name", ["count", "pass", "score"])
def test_time_maps__is_what_the_simulation_plays(rows, workers, name):
    planner = plan(rows, workers)
    work = planner.list_maps()[name]
    side = max(1, min(work.side_by_side, work.repeats))
    closed = time_maps(replace(work, repeats=side), planner.cluster, SPEEDS)
    played = simulate_map(work, planner.cluster, SPEEDS)
    assert played.wall / 1.35 <= closed.wall <= 1.35 * played.wall
    assert played.scheduler == pytest.approx(closed.scheduler, rel=0.1)


def test_time_maps__counting_uses_a_thousand_workers():
    planner = plan(10**10, 1000)
    work = planner.list_maps()["count"]
    played = [simulate_map(work, planner.cluster, SPEEDS, seed=seed) for seed in range(5)]
    assert sum(each.efficiency for each in played) / len(played) > 0.7
    assert planner.plan_counts().efficiency > 0.7
    # as many maps as there are folds, each handed out and merged for itself
    apart = replace(work, calls=planner.fit.folds)
    assert simulate_map(apart, planner.cluster, SPEEDS).wall > played[0].wall + 0.05


@pytest.mark.parametrize("workers", [100, 250, 500, 1000])
@pytest.mark.parametrize("name", ["pass", "pass and score"])
def test_time_maps__passes_of_runs_side_by_side_are_what_the_simulation_plays(workers, name):
    planner = plan(10**10, workers)
    work = planner.list_maps()[name]
    assert work.side_by_side == 2
    if work.beside is not None:
        work = replace(work, beside=replace(work.beside, repeats=8))
    closed = time_maps(replace(work, repeats=8), planner.cluster, SPEEDS)
    played = simulate_map(work, planner.cluster, SPEEDS, rounds=4)
    assert played.wall / 1.1 <= closed.wall <= 1.1 * played.wall
    assert played.scheduler == pytest.approx(closed.scheduler, rel=0.1)
    one_by_one = time_maps(replace(work, repeats=8, side_by_side=1), planner.cluster, SPEEDS)
    assert played.wall < one_by_one.wall
    assert played.efficiency > (0.75 if name == "pass" else 0.7)


def test_time_maps__models_are_scored_while_passes_are_made():
    planner = plan(10**10, 1000)
    maps = planner.list_maps()
    together = maps["pass and score"]
    apart = time_maps(maps["pass"], planner.cluster, SPEEDS)
    scored = time_maps(together.beside, planner.cluster, SPEEDS)
    found = time_maps(together, planner.cluster, SPEEDS)
    assert apart.wall < found.wall < apart.wall + scored.wall
    assert found.scheduler == pytest.approx(apart.scheduler + scored.scheduler)
    assert planner.plan_refine().efficiency > 0.75
    # on few threads as well, but one run at a time
    assert plan(10**8, 16).list_maps()["pass and score"].side_by_side == 1


def test_simulate_map__same_seed_same_times():
    work = MapWork(MapTasks(100, 5, 1, 2, 100), 0.1)
    cluster = ClusterSize(10)
    first, again, other = (simulate_map(work, cluster, SPEEDS, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_simulate_map__one_worker_does_one_after_the_other():
    work = MapWork(MapTasks(10), 1.0)
    found = simulate_map(work, ClusterSize(1), SPEEDS, Hitches(spread=0.0))
    assert found.wall == pytest.approx(10.0, rel=0.01)
    assert found.efficiency == pytest.approx(1.0, rel=0.01)


def test_simulate_map__all_wait_for_a_straggler():
    work = MapWork(MapTasks(1000), 1.0)
    even, held_up = (
        simulate_map(work, ClusterSize(1000), SPEEDS, Hitches(0.0, share, 3.0))
        for share in (0.0, 0.01)
    )
    assert held_up.wall > even.wall + 1.5


def test_simulate_map__no_quicker_than_its_scheduler():
    found = simulate_map(MapWork(MapTasks(5000), 1e-4), ClusterSize(1000), SPEEDS)
    assert found.wall >= 5000 * SPEEDS.task_seconds
