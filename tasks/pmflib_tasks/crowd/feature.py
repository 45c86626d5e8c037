"""Label logs: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Command, Feature, Place

FEATURE = Feature(
    "crowd",
    commands=(Command("crowd", Place("pmflib_flows.crowd.crowd:crowd"), "Labels", 210),),
)
