"""Products on top of the library: estimators, scoring of files, recommendations, label logs, demonstrations."""
