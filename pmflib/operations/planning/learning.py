"""A plan beside what its run took, and what the next plan learns from that: speeds, starting times, memory.

What was learnt is kept in the record of the run, and goes from each record into the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pmflib.operations.planning.pipeline_sizes import CORRECTED, correct_speeds
from pmflib.operations.planning.speeds import Learnt
from pmflib.operations.planning.stage_costs import StageCost
from pmflib.operations.planning.whole_run import RunPlan

PLANNED = {
    "ingest": ("read", "sort"),
    "count": ("count",),
    "fit": ("fit",),
    "refine": ("refine", "forests"),
    "fit_traits": ("traits",),
    "choose": ("choose",),
    "evaluate": ("evaluate",),
}
"""Rows of a plan that each stage of a run is planned as."""
LEARNT_SECONDS = 0.2
"""Time of a stage below which nothing is learnt of how it starts: it has found its result already made."""
MOST_STARTING = 10.0
"""Longest time that a stage may be taken to need for starting, seconds: what is longer is work that took longer."""


@dataclass(frozen=True)
class StageTotals:
    """What a stage takes, as planned or as measured.

    Parameters
    ----------
    seconds
        Time by the clock.
    processor_seconds
        Processor time of client, scheduler and workers.
    client_memory, worker_memory
        Most bytes that the client, and a worker, held; 0 where workers are threads of the client, or there are none.
    read_bytes, written_bytes
        Bytes that all of them read and wrote.
    """

    seconds: float
    processor_seconds: float
    client_memory: float
    worker_memory: float
    read_bytes: float
    written_bytes: float

    @classmethod
    def of_plan(cls, stages: Sequence[StageCost]) -> StageTotals:
        """Totals of rows of a plan, which follow each other."""
        return cls(
            sum(each.wall_seconds for each in stages),
            sum(each.processor_seconds for each in stages),
            max((each.client_memory for each in stages), default=0),
            max((each.worker_memory for each in stages), default=0),
            sum(each.read_bytes for each in stages),
            sum(each.written_bytes for each in stages),
        )


def list_planned(plan: RunPlan) -> dict[str, StageTotals]:
    """What each stage of a run is planned to take, by its name."""
    rows = {stage.stage: stage for stage in plan.stages}
    found = {}
    for stage, names in PLANNED.items():
        if mine := [rows[name] for name in names if name in rows]:
            found[stage] = StageTotals.of_plan(mine)
    return found


def learn(plan: RunPlan, timings: Sequence[Mapping[str, Any]], known: Learnt) -> Learnt:
    """Learn from a run that has done all of its work.

    Parameters
    ----------
    plan
        Plan of the run as it was, on the machines that made it, with the speeds that were known before.
    timings
        Section "timings" of its facts: what each stage took. Stages that found their result already made say nothing.
    known
        What was learnt before.
    """
    starting = dict(known.starting)
    bare = replace(plan, speeds=replace(plan.speeds, starting=()))
    planned = list_planned(bare)
    at_work = {}
    own_bytes = 0
    seconds = {each["stage"]: each["seconds"] for each in timings}
    for each in timings:
        stage = each["stage"]
        if stage in planned and each["client_memory"]:
            data = planned[stage].client_memory - plan.speeds.client_bytes
            own_bytes = max(own_bytes, round(each["client_memory"] - data))
        at_work[stage] = each["processor_seconds"]
    speeds = correct_speeds(bare, at_work)
    for stage, totals in list_planned(replace(bare, speeds=speeds)).items():
        if (took := seconds.get(stage, 0.0)) >= LEARNT_SECONDS:
            starting[stage] = min(MOST_STARTING, max(0.0, took - totals.seconds))
    names = {name for stage in CORRECTED for name in CORRECTED[stage]}
    changed = {
        name: getattr(speeds, name)
        for name in sorted(names)
        if getattr(speeds, name) != getattr(bare.speeds, name)
    }
    if own_bytes > 0:
        changed["client_bytes"] = own_bytes
    return Learnt({**known.speeds, **changed}, starting)
