"""What forests add to the core and to lower wings."""

HOOKS = {
    "information": {"forests": "pmflib.families.forests.information:ForestInformation"},
    "refits": {"forests": "pmflib.families.forests.refits:ForestRefits"},
}
