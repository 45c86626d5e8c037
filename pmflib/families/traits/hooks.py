"""What traits add to the core and to lower wings."""

HOOKS = {
    "information": {"traits": "pmflib.families.traits.information:ItemInformation"},
    "refits": {"traits": "pmflib.families.traits.refits:TraitRefits"},
}
