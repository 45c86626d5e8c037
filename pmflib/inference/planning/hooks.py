"""What this feature adds to the core."""

HOOKS = {
    "face": {
        "bound_sample_size": "pmflib.inference.planning.sample_sizes:bound_sample_size",
        "sample_size": "pmflib.inference.planning.sample_sizes:sample_size",
    },
}
