"""What this feature adds to the core."""

HOOKS = {
    "information": {"forests": "pmflib.families.forests.information:ForestInformation"},
    "refits": {"forests": "pmflib.families.forests.refits:ForestRefits"},
    "kinds": {"forests": "pmflib.families.forests.kind:FORESTS"},
    "models": {"dependence=tree": "pmflib.families.forests.tree_pmf:TreePMF"},
    "model_methods": {"edges": "pmflib.families.forests.tree_pmf:list_edges"},
}
