"""What this feature adds to the core."""

HOOKS = {
    "face": {
        "pool": "pmflib.inference.imputation.pooling:pool",
    },
}
