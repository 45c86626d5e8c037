"""What survey designs add to the core."""

HOOKS = {
    "face": {
        "SurveyDesign": "pmflib.surveys.design.survey_design:SurveyDesign",
        "fit_replicates": "pmflib.surveys.design.replicates:fit_replicates",
    },
    "stored_designs": {
        "psu": "pmflib.surveys.design.sample_designs:open_units",
        "replicates": "pmflib.surveys.design.sample_designs:open_replicates",
    },
}
