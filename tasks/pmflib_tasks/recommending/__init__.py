"""Items ranked from stored models and counts."""
