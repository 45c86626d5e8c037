"""What scoring adds to the core."""

HOOKS = {"model_methods": {"score": "pmflib.apps.scoring.score_tables:score_table"}}
