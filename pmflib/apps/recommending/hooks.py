"""What this feature adds to the core."""

HOOKS = {
    "face": {
        "measure_recommendations": "pmflib.apps.recommending.measures:measure_recommendations",
        "recommend": "pmflib.apps.recommending.recommending:recommend",
    },
}
