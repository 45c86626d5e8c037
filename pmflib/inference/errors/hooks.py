"""What this feature adds to the core."""

HOOKS = {
    "face": {
        "standard_errors": "pmflib.inference.errors.standard_errors:standard_errors",
    },
    "model_records": {"errors": "pmflib.inference.errors.recorded:record_errors"},
}
