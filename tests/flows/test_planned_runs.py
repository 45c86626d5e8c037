"""The record of a run has what its stages took beside what was planned, and the next plan learns from it."""

from typing import Any

from pmflib.store.run_records import list_records
from pmflib_flows import planned_runs
from pmflib_flows.plan_tables import make_usage_table
from pmflib_tasks.operations.planning.pipeline_sizes import read_last_run
from pmflib_tasks.operations.planning.speeds import Learnt
from tests.flows.nights import draw_ratings, nights  # noqa: F401

STAGES = ["ingest", "count", "fit", "refine", "evaluate"]


def test_run__planned_against_measured(nights, monkeypatch):  # noqa: F811
    monkeypatch.setattr(planned_runs, "PLANNED_SECONDS", 0.0)
    made = nights(6)
    made.deliver("a.csv", draw_ratings(300, 6), range(300))
    made.run()
    made.run()
    first, second = list_records(made.store, "pipeline")
    facts: Any = first.facts
    assert sorted(facts["planned"]) == sorted(STAGES)
    took = {each["stage"]: each for each in facts["timings"]}
    for stage in STAGES:
        assert took[stage]["client_memory"] > 50 << 20
        assert took[stage]["processor_seconds"] >= 0
        assert facts["planned"][stage]["seconds"] > 0
    assert took["ingest"]["read_bytes"] > (made.log / "a.csv").stat().st_size
    learnt = Learnt.find(facts)
    assert learnt.speeds["client_bytes"] > 50 << 20
    # a night that finds all done learns nothing, and hands on what was learnt
    assert second.outcome == "unchanged"
    assert Learnt.find(second.facts) == learnt == read_last_run(made.config).learnt
    shown = make_usage_table(facts)
    assert shown is not None


def test_run__small_ones_make_no_plan(nights):  # noqa: F811
    made = nights(4)
    made.deliver("a.csv", draw_ratings(100, 4), range(100))
    made.run()
    made.run()
    assert "planned" not in list_records(made.store, "pipeline")[-1].facts
