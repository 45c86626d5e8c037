"""What this feature adds to the core."""

HOOKS = {
    "face": {
        "class_regression": "pmflib.inference.three_steps.three_steps:class_regression",
        "classify": "pmflib.inference.three_steps.classification:classify",
        "distal_outcome": "pmflib.inference.three_steps.three_steps:distal_outcome",
    },
}
