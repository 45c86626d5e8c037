"""What forests add to the core."""

HOOKS = {
    "kinds": {"forests": "pmflib.families.forests.kind:FORESTS"},
    "models": {"dependence=tree": "pmflib.families.forests.tree_pmf:TreePMF"},
    "model_methods": {"edges": "pmflib.families.forests.tree_pmf:list_edges"},
}
