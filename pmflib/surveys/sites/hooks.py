"""What counts of other sites add to the core: files of counts."""

HOOKS = {
    "face": {
        "read_counts": "pmflib.surveys.sites.site_counts:read_counts",
    },
    "count_files": {
        "export": "pmflib.surveys.sites.site_files:write_site",
    },
}
