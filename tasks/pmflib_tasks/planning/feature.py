"""Memory and time of a run: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Command, Feature, Place

FEATURE = Feature(
    "planning",
    commands=(Command("plan", Place("pmflib_flows.planning.plan:plan"), "Operate", 420),),
    note_draft=Place("pmflib_tasks.planning.planning:note_width"),
    check_run=Place("pmflib_tasks.planning.planning:check_run_width"),
)
