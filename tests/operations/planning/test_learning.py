"""What a plan learns from a run: the next plan of that run says what it took."""

from dataclasses import replace

import pytest

from pmflib_tasks.operations.planning.learning import StageTotals, find_factor, learn, list_planned
from pmflib_tasks.operations.planning.sizes import ClusterSize, FitSize, LogSize
from pmflib_tasks.operations.planning.speeds import Learnt, Speeds
from pmflib_tasks.operations.planning.whole_run import RunPlan

STAGES = ("ingest", "count", "fit", "refine", "evaluate")


def make_plan(speeds, rows=10**7):
    size = LogSize(rows, rows, 30, 150, 0.9, 4, 60 * rows, 60 * rows, identified=True)
    return RunPlan(size, FitSize(20), ClusterSize(2), speeds)


def measure(plan, factors, memory=0):
    """What stages took: as planned, times factors."""
    return [
        {
            "stage": stage,
            "seconds": factors.get(stage, 1.0) * totals.seconds,
            "processor_seconds": factors.get(stage, 1.0) * totals.processor_seconds,
            "client_memory": memory,
        }
        for stage, totals in list_planned(plan).items()
    ]


@pytest.mark.parametrize("rows", [10**5, 10**7])
def test_learn__the_next_plan_says_what_the_run_took(rows):
    before = make_plan(Speeds(), rows)
    factors = {"ingest": 3.0, "count": 2.0, "fit": 1.8, "refine": 0.7, "evaluate": 4.0}
    took = measure(before, factors)
    learnt = learn(before, took, Learnt())
    again = list_planned(make_plan(learnt.apply(Speeds()), rows))
    for each in took:
        if each["seconds"] >= 0.2 and factors[each["stage"]] > 1:
            assert 1 / 1.5 < again[each["stage"]].seconds / each["seconds"] < 1.5, each
    assert Learnt.find({"learnt": learnt.to_json()}) == learnt


def test_learn__starting_and_loading_are_no_speed():
    before = make_plan(Speeds(), 10**5)
    took = [{"stage": "count", "seconds": 3.0, "processor_seconds": 1.0, "client_memory": 0}]
    learnt = learn(before, took, Learnt())
    assert learnt.speeds["count_share"] < 1.3 * Speeds().count_share
    assert learnt.loading["count"] > 1.5
    assert list(learnt.starting) == ["count"]
    # a hundred times the rows take no hundred times of what starting took
    grown = list_planned(make_plan(learnt.apply(Speeds()), 10**7))["count"].seconds
    assert grown < list_planned(make_plan(Speeds(), 10**7))["count"].seconds + 3.0
    # what was already made says nothing
    idle = [{"stage": "count", "seconds": 0.01, "processor_seconds": 0.0, "client_memory": 0}]
    assert learn(before, idle, learnt) == learnt


def test_find_factor__what_was_much_of_the_time_has_changed_more():
    assert find_factor(10.0, 0.1, 20.0) == pytest.approx(2.0, rel=0.01)
    assert find_factor(0.01, 1.0, 3.0) == pytest.approx(1.0, rel=0.03)
    # of two equal parts the work varies more: its factor is the square of the other's
    factor = find_factor(1.0, 1.0, 6.0)
    assert factor == pytest.approx(4.0, rel=1e-6)
    assert find_factor(1.0, 0.0, 0.5) == pytest.approx(0.5, rel=1e-6)
    assert find_factor(1.0, 1.0, 1e9) == 5.0


def test_learn__memory_of_the_client_without_its_data():
    before = make_plan(Speeds())
    largest = max(totals.client_memory for totals in list_planned(before).values())
    learnt = learn(before, measure(before, {}, memory=2 * largest), Learnt())
    after = make_plan(learnt.apply(Speeds()))
    assert learnt.speeds["client_bytes"] > before.speeds.client_bytes
    # of each stage, what it held
    found = [totals.client_memory for totals in list_planned(after).values()]
    assert found == pytest.approx([2 * largest] * len(STAGES))


def test_list_planned__rows_that_follow_each_other_are_one_stage():
    plan = make_plan(Speeds())
    read, sort = plan.stages[:2]
    assert list_planned(plan)["ingest"] == StageTotals.of_plan([read, sort])
    assert list_planned(plan)["ingest"].seconds == read.wall_seconds + sort.wall_seconds
    assert tuple(list_planned(plan)) == STAGES


def test_start_later__adds_up():
    plan = make_plan(Speeds())
    later = make_plan(replace(Speeds(), starting=(("ingest", 2.0), ("refine", 1.0))))
    assert later.wall_seconds == pytest.approx(plan.wall_seconds + 3.0)
    assert later.stages[0].efficiency < plan.stages[0].efficiency
    assert later.to_json()["speeds"]["starting"] == {"ingest": 2.0, "refine": 1.0}
