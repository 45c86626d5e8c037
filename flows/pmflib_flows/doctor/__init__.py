"""Checks of a setup before a run, and their command."""
