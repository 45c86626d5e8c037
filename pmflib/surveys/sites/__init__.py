"""Counts of other sites: exported with small cells rounded, and pooled."""
