"""Counts of other sites, pooled."""
