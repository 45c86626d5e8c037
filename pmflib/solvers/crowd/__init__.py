"""Estimation of confusion matrices from expected counts and from pairs of workers."""
