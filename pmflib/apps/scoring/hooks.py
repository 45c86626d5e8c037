"""What this feature adds to the core."""

HOOKS = {
    "face": {
        "score_file": "pmflib.apps.scoring.file_scoring:score_file",
    },
}
