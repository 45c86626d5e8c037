"""Label logs: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Command, Feature, Place

FEATURE = Feature(
    "crowd",
    section={"crowd": Place("pmflib_tasks.crowd.section:CrowdConfig")},
    guards=Place("pmflib_tasks.crowd.guard_options:LabelGuards"),
    commands=(Command("crowd", Place("pmflib_flows.crowd.crowd:crowd"), "Labels", 210),),
    health=Place("pmflib_tasks.crowd.known:list_checks"),
    run_labels=Place("pmflib_flows.crowd.crowd_flow:run_labels"),
    sections={"classes": Place("pmflib_tasks.crowd.label_sections:describe_labels")},
    compare_runs={"labels": Place("pmflib_tasks.crowd.label_differences:compare_runs")},
    erase=Place("pmflib_tasks.crowd.erasure:HOLDER"),
    status=Place("pmflib_tasks.crowd.label_sections:find_label_status"),
    report=Place("pmflib_tasks.crowd.label_report:report_labels"),
)
