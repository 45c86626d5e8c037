"""Choosing on held-out data."""
