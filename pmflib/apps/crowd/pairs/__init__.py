"""Confusion matrices from expected counts and from pairs of workers."""
