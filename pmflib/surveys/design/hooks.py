"""What survey designs add to the core."""

HOOKS = {
    "face": {
        "SurveyDesign": "pmflib.surveys.design.survey_design:SurveyDesign",
        "fit_replicates": "pmflib.surveys.design.replicates:fit_replicates",
    },
    "replicate_counts": {
        "count": "pmflib.surveys.design.replicate_counts:count_replicates",
        "plan": "pmflib.surveys.design.replicate_counts:plan_replicates",
    },
    "stored_designs": {
        "psu": "pmflib.surveys.design.sample_designs:open_units",
        "replicates": "pmflib.surveys.design.sample_designs:open_replicates",
    },
}
