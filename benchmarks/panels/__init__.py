"""Sections of the panel, which ``python -m benchmarks.panel`` runs."""
