"""What this feature adds to the core."""

HOOKS = {
    "information": {"forests": "pmflib.families.forests.information:ForestInformation"},
    "refits": {"forests": "pmflib.families.forests.refits:ForestRefits"},
}
