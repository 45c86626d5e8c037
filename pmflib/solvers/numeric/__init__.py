"""Numerical methods that are independent of the model."""
