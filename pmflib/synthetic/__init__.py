"""Data drawn from a known truth: models, raw logs, label logs."""
