"""The page of a run: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Command, Feature, Place

FEATURE = Feature(
    "report",
    commands=(Command("report", Place("pmflib_flows.report.report:report"), "Ask", 160),),
    after_run=Place("pmflib_flows.report.report_artifact:publish_report"),
)
