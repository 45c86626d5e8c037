"""What this feature adds to the core."""

HOOKS = {
    "face": {
        "fit_groups": "pmflib.families.groups.groups:fit_groups",
    },
}
