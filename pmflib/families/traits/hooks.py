"""What traits add to the core."""

HOOKS = {
    "face": {
        "fit_item_responses": "pmflib.families.traits.item_responses:fit_item_responses",
        "fit_traits": "pmflib.families.traits.traits:fit_traits",
    },
    "kinds": {"traits": "pmflib.families.traits.kind:TRAITS"},
    "models": {"n_traits": "pmflib.families.traits.trait_pmf:TraitPMF"},
    "model_methods": {
        "plot_traits": "pmflib.families.traits.figures:plot_traits",
        "traits": "pmflib.families.traits.trait_pmf:score_traits",
    },
}
