"""Models fitted to a target: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Feature, Place

FEATURE = Feature(
    "target",
    sections={"scores": Place("pmflib_tasks.target.target_sections:describe_target")},
    evaluate_target=Place("pmflib_tasks.target.prediction:evaluate_target"),
    report=Place("pmflib_tasks.target.target_figures:report_target"),
)
