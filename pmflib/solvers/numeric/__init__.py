"""Numerical steps that know nothing of the model."""
