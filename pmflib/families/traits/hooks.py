"""What this feature adds to the core."""

HOOKS = {
    "face": {
        "fit_item_responses": "pmflib.families.traits.item_responses:fit_item_responses",
        "fit_traits": "pmflib.families.traits.traits:fit_traits",
    },
    "information": {"traits": "pmflib.families.traits.information:ItemInformation"},
    "refits": {"traits": "pmflib.families.traits.refits:TraitRefits"},
    "models": {"n_traits": "pmflib.families.traits.trait_pmf:TraitPMF"},
    "model_methods": {
        "plot_traits": "pmflib.families.traits.figures:plot_traits",
        "traits": "pmflib.families.traits.trait_pmf:score_traits",
    },
}
