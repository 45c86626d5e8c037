"""Schemas and configurations drafted from data: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Command, Feature, Place

FEATURE = Feature(
    "drafting",
    commands=(
        Command("infer", Place("pmflib_flows.drafting.infer:infer"), "Start", 20),
        Command("schema", Place("pmflib_flows.drafting.schema_file:schema"), "Start", 60),
    ),
)
