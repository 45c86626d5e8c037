"""Latent classes related to external variables: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Command, Feature, Place

FEATURE = Feature(
    "three_steps",
    commands=(
        Command(
            "three-steps", Place("pmflib_flows.three_steps.three_steps:three_steps"), "Ask", 150
        ),
    ),
)
