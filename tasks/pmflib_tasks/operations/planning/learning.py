"""A plan beside what its run took, and what the next plan learns from that: speeds, starting times, memory.

What was learnt is kept in the record of the run, and goes from each record into the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pmflib.cluster.memory import OWN_BYTES
from pmflib.fitting.candidates import SMALL_WORK
from pmflib_tasks.operations.planning.speeds import Learnt, Speeds
from pmflib_tasks.operations.planning.stage_costs import StageCost
from pmflib_tasks.operations.planning.whole_run import RunPlan

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
MEMORY = "client_memory", "worker_memory"
"""What rows of a plan hold at most."""
CORRECTED = {
    "ingest": {"read_bytes": -1, "sort_bytes": -1},
    "count": {"count_share": 1},
    "fit": {"fit_ns": 1},
    "refine": {"em_ns": 1},
    "fit_traits": {"trait_ns": 1},
    "evaluate": {"evaluate_ns": 1},
}
"""Speeds that a stage depends on most, and whether they are seconds (1) or work in a second (-1)."""
MOST_FACTOR = 5.0
"""Largest correction of a speed: what is beyond it has other reasons."""
LEARNT_SECONDS = 0.2
"""Time of a stage below which nothing is learnt of it: it has found its result already made."""
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
    def of_plan(cls, stages: Sequence[StageCost], *, is_shared: bool = False) -> StageTotals:
        """Totals of rows of a plan, which follow each other; the client may have its workers among its threads."""
        client, worker = (
            max((getattr(each, name) for each in stages), default=0) for name in MEMORY
        )
        if is_shared:
            client, worker = client + max(0, worker - OWN_BYTES), 0
        return cls(
            sum(each.wall_seconds for each in stages),
            sum(each.processor_seconds for each in stages),
            client,
            worker,
            sum(each.read_bytes for each in stages),
            sum(each.written_bytes for each in stages),
        )


def list_planned(plan: RunPlan) -> dict[str, StageTotals]:
    """What each stage of a run is planned to take, by its name."""
    rows = {stage.stage: stage for stage in plan.stages}
    found = {}
    for stage, names in PLANNED.items():
        if mine := [rows[name] for name in names if name in rows]:
            found[stage] = StageTotals.of_plan(mine, is_shared=plan.cluster.is_shared)
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
    own_bytes = plan.speeds.client_bytes
    bare = replace(plan, speeds=replace(plan.speeds, starting=(), client_held=()))
    took = {each["stage"]: each for each in timings if each["seconds"] >= LEARNT_SECONDS}
    speeds = correct_speeds(
        bare, {stage: each["processor_seconds"] for stage, each in took.items()}
    )
    planned = list_planned(bare)
    held = {
        each["stage"]: each["client_memory"] - planned[each["stage"]].client_memory + own_bytes
        for each in timings
        if each["stage"] in planned and each["client_memory"]
    }
    if held:
        speeds = replace(speeds, client_bytes=round(max(held.values())))
    starting = dict(known.starting)
    for stage, totals in list_planned(replace(bare, speeds=speeds)).items():
        if stage in took:
            later = took[stage]["seconds"] - totals.seconds
            starting[stage] = min(MOST_STARTING, max(0.0, later))
    names = {name for stage in CORRECTED.values() for name in stage} | {"client_bytes"}
    changed = {
        name: getattr(speeds, name)
        for name in sorted(names)
        if getattr(speeds, name) != getattr(bare.speeds, name)
    }
    loading = {**known.loading, **dict(speeds.loading)}
    held = {**known.client_held, **held}
    return Learnt({**known.speeds, **changed}, held, loading, starting)


def correct_speeds(plan: RunPlan, seconds: Mapping[str, float]) -> Speeds:
    """Correct speeds by the processor times of a run, which depend less than others on what else a machine does.

    Parameters
    ----------
    plan
        Plan of that run on the machine that made it.
    seconds
        Processor seconds that its stages took, by name; below ``LEARNT_SECONDS`` they say nothing.

    Returns
    -------
    The speeds with which the plan says what the run took, but for corrections above ``MOST_FACTOR``.

    Notes
    -----
    Of what a stage took, a part grows with the data, and the rest does not: kernels load, tasks are handed out. One run
    does not say which of both was planned wrongly. Logarithms of the two factors are taken to be what is likeliest if
    those of the work vary twice as much as those of the rest, in variance: they are then, about, in proportion to twice
    the planned seconds of the work and to those of the rest. So a run of little work says little of speeds.
    """
    planned = list_planned(plan)
    # of what depends on what a run found, no time was planned
    unknown = {stage.stage for stage in plan.stages if stage.least is not None}
    is_small = plan.fit.members == 1 and plan.log.observed_cells * plan.fit.rank <= SMALL_WORK
    if plan.planner.forest_memory is not None or is_small:
        # the stage of EM took what forests, or a search for the best optimum, took as well
        unknown.add("refine")
    speeds, loading = plan.speeds, dict(plan.speeds.loading)
    for stage, names in CORRECTED.items():
        measured = seconds.get(stage, 0.0)
        if measured < LEARNT_SECONDS or stage not in planned or unknown & {*PLANNED[stage]}:
            continue
        twice = {name: getattr(plan.speeds, name) * 2.0**power for name, power in names.items()}
        slower = replace(plan, speeds=replace(plan.speeds, **twice))
        work = list_planned(slower)[stage].processor_seconds - planned[stage].processor_seconds
        rest = planned[stage].processor_seconds - work
        of_work = find_factor(work, rest, measured)
        for name, power in names.items():
            speeds = replace(speeds, **{name: getattr(speeds, name) * of_work**power})
        own = sum_loading(plan, stage)
        if own > 0:
            left = max(0.0, measured - of_work * work - (rest - own))
            loading[stage] = loading.get(stage, 1.0) * left / own
    return replace(speeds, loading=tuple(sorted(loading.items())))


def sum_loading(plan: RunPlan, stage: str) -> float:
    """Processor seconds in which client and workers are planned to load what a stage needs."""
    client, worker = plan.speeds.find_loading(stage)
    return client + plan.cluster.workers * worker


def find_factor(work: float, rest: float, measured: float) -> float:
    """Factor of the seconds of work by which it comes to what was measured, with the rest: see `correct_speeds`.

    Parameters
    ----------
    work, rest, measured
        Seconds, at least 0.
    """
    most = max(2 * work, rest, 1e-300)
    shares = 2 * work / most, rest / most
    low, high = 1e-3, 1e3
    for _ in range(50):
        middle = (low * high) ** 0.5
        if work * middle ** shares[0] + rest * middle ** shares[1] < measured:
            low = middle
        else:
            high = middle
    factor: float = low ** shares[0]
    return min(MOST_FACTOR, max(1 / MOST_FACTOR, factor))
