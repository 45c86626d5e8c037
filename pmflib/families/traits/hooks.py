"""What traits add to the core."""

HOOKS = {
    "kinds": {"traits": "pmflib.families.traits.kind:TRAITS"},
    "models": {"n_traits": "pmflib.families.traits.trait_pmf:TraitPMF"},
    "model_methods": {
        "plot_traits": "pmflib.families.traits.figures:plot_traits",
        "traits": "pmflib.families.traits.trait_pmf:score_traits",
    },
}
