"""What this feature adds to the core."""

HOOKS = {
    "face": {
        "measure_recommendations": "pmflib.apps.recommending.recommending:measure_recommendations",
        "recommend": "pmflib.apps.recommending.recommending:recommend",
    },
}
