"""Expectation-maximisation over samples, whatever the model is."""
