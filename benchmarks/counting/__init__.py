"""Counting all pairs of variables."""
