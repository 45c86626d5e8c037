"""Known margins of the population: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Feature, Place

FEATURE = Feature(
    "margins",
    section={"margins": Place("pmflib_tasks.margins.section:MarginsConfig")},
    plan=Place("pmflib_tasks.margins.rake:plan_stages"),
    steps=Place("pmflib_tasks.margins.rake:STEPS"),
    health=Place("pmflib_tasks.margins.rake:list_checks"),
    compare_datasets=Place("pmflib_tasks.margins.rake:compare_margins"),
    sections={"rows": Place("pmflib_tasks.margins.margin_sections:describe_margins")},
)
