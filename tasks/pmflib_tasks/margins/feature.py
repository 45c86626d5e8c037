"""Raking to known margins: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Feature, Place

FEATURE = Feature(
    "margins",
    steps=Place("pmflib_tasks.margins.rake:STEPS"),
    compare_datasets=Place("pmflib_tasks.margins.rake:compare_margins"),
    sections={"rows": Place("pmflib_tasks.margins.margin_sections:describe_margins")},
)
