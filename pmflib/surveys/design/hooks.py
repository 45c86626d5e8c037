"""What this feature adds to the core."""

HOOKS = {
    "face": {
        "SurveyDesign": "pmflib.surveys.design.survey_design:SurveyDesign",
        "fit_replicates": "pmflib.surveys.design.replicates:fit_replicates",
    },
}
