"""What this feature adds to the core."""

HOOKS = {
    "face": {
        "RakedDesign": "pmflib.surveys.margins.samples:RakedDesign",
        "rake": "pmflib.surveys.margins.samples:rake",
    },
}
