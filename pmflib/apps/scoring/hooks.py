"""What this feature adds to the core."""

HOOKS = {
    "face": {
        "score_file": "pmflib.apps.scoring.file_scoring:score_file",
    },
    "model_methods": {"score": "pmflib.apps.scoring.score_tables:score_table"},
}
