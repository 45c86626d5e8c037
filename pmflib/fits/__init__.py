"""From counts and samples to a model."""
