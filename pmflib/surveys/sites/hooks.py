"""What this feature adds to the core."""

HOOKS = {
    "face": {
        "read_counts": "pmflib.surveys.sites.site_counts:read_counts",
    },
}
