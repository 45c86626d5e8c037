"""Synthetic data with known parameters: models, raw logs and label logs."""
