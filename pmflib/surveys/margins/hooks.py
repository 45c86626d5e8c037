"""What margins add to the core."""

HOOKS = {"model_methods": {"rake": "pmflib.surveys.margins.model:rake_model"}}
