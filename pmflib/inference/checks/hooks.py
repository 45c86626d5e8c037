"""What this feature adds to the core."""

HOOKS = {
    "face": {
        "bivariate_residuals": "pmflib.inference.checks.bivariate_residuals:bivariate_residuals",
        "diagnose": "pmflib.inference.checks.diagnostics:diagnose",
        "likelihood_ratio_test": "pmflib.inference.checks.rank_tests:likelihood_ratio_test",
    },
    "count_diagnoses": {"diagnosis": "pmflib.inference.checks.diagnostics:diagnose"},
    "fit_notes": {"residuals": "pmflib.inference.checks.fit_notes:note_fit"},
}
