"""The report of a run: one HTML page that needs nothing else, for two minutes first, then for an hour."""
