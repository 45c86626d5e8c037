"""What counts of other sites add to the core: files of counts."""

HOOKS = {"count_files": {"export": "pmflib.surveys.sites.site_files:write_site"}}
