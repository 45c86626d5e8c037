"""Compiled loops that rank items."""
