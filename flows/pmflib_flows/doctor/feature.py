"""Checks of a setup: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Command, Feature, Place

FEATURE = Feature(
    "doctor",
    commands=(Command("doctor", Place("pmflib_flows.doctor.doctor:doctor"), "Operate", 430),),
)
