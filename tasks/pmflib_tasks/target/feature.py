"""Models fitted to a target: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Feature, Place

FEATURE = Feature(
    "target",
    cut_draft=Place("pmflib_tasks.target.draft_cuts:cut_draft"),
    evaluate_target=Place("pmflib_tasks.target.prediction:evaluate_stored_target"),
    sections={"scores": Place("pmflib_tasks.target.target_sections:describe_target")},
    report=Place("pmflib_tasks.target.target_figures:report_target"),
)
