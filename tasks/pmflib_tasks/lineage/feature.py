"""Events of OpenLineage: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Feature, Place

FEATURE = Feature(
    "lineage",
    section={"lineage": Place("pmflib_tasks.lineage.section:LineageConfig")},
    follow_run=Place("pmflib_tasks.lineage.following:follow_run"),
    read_event=Place("pmflib_tasks.lineage.lineage:unseal_event"),
)
