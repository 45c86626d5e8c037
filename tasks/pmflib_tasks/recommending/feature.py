"""Recommendations of items: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Command, Feature, Place

FEATURE = Feature(
    "recommending",
    commands=(
        Command("recommend", Place("pmflib_flows.recommending.recommend:recommend"), "Ask", 140),
    ),
)
