"""What fits for a target add to the core."""

HOOKS = {"target_fits": {"classes": "pmflib.inference.target.target_fit:TargetFit"}}
