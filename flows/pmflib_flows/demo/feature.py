"""Demonstrations: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Command, Feature, Place

FEATURE = Feature(
    "demo",
    commands=(Command("demo", Place("pmflib_flows.demo.demo:demo"), "Start", 10),),
)
