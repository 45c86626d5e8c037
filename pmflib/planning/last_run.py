"""Speeds corrected by what the stages of the last run took, on the machine that made it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pmflib.planning.run_plans import RunPlan
from pmflib.planning.speeds import Speeds

LEAST_SECONDS = 5.0
"""Seconds of a stage from which its time says something of its speed: below, it is starting and compiling."""
MOST_FACTOR = 5.0
"""Largest correction: what is beyond it has other reasons than speed."""


def correct_speeds(plan: RunPlan, seconds: Mapping[str, float]) -> tuple[Speeds, list[str]]:
    """Correct speeds by the times of a run.

    Parameters
    ----------
    plan
        Plan of that run on the machine that made it.
    seconds
        Seconds that its stages took, by name: ingest, count, fit, refine, fit_traits, evaluate. Stages that found their
        result already made took next to none, and say nothing.

    Returns
    -------
    The speeds, and a note for each correction.
    """
    # of what depends on what a run found, no time was planned
    planned = {stage.stage: stage.wall_seconds for stage in plan.stages if stage.least is None}
    planned["ingest"] = planned.pop("read") + planned.pop("sort")
    planned["fit_traits"] = planned.pop("traits", 0.0)
    if plan.planner.forest_memory is not None:
        # the stage of EM took what forests took as well
        planned.pop("refine", None)
    speeds, notes = plan.speeds, []
    for stage, fields in CORRECTED.items():
        taken = seconds.get(stage, 0.0)
        if taken < LEAST_SECONDS or planned.get(stage, 0.0) <= 0:
            continue
        factor = min(MOST_FACTOR, max(1 / MOST_FACTOR, taken / planned[stage]))
        for field, power in fields.items():
            speeds = replace(speeds, **{field: getattr(speeds, field) * factor**power})
        limited = "" if factor == taken / planned[stage] else f", {MOST_FACTOR:g} times at most"
        notes.append(
            f"speeds: {stage} took {taken:.0f} s in the last run, where {planned[stage]:.0f} s were planned; "
            f"its speed is corrected by that{limited}"
        )
    return speeds, notes


CORRECTED = {
    "ingest": {"read_bytes": -1, "sort_bytes": -1},
    "count": {"count_share": 1},
    "fit": {"fit_ns": 1},
    "refine": {"em_ns": 1},
    "fit_traits": {"trait_ns": 1},
    "evaluate": {"evaluate_ns": 1},
}
"""Speeds that a stage depends on most, and whether they are seconds (1) or work in a second (-1)."""
