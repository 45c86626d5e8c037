"""OpenLineage events of runs and stages, and where they go."""
