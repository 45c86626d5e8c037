"""Compiled loops that read texts."""
