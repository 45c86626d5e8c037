"""What this feature adds to the core."""

HOOKS = {
    "face": {
        "fit_transitions": "pmflib.families.panels.fit:fit_transitions",
        "spread_waves": "pmflib.families.panels.waves:spread_waves",
    },
    "information": {"panels": "pmflib.families.panels.information:ChainInformation"},
}
