"""Scores and reports of a target."""
