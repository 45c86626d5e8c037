"""Counts that sites hand on: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Command, Feature, Place

FEATURE = Feature(
    "sites",
    commands=(Command("counts", Place("pmflib_flows.sites.counts:counts"), "Operate", 440),),
)
