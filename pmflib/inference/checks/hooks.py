"""What checks add to the core."""

HOOKS = {"fit_notes": {"residuals": "pmflib.inference.checks.fit_notes:note_fit"}}
