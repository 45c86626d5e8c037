"""Expectation-maximisation (EM) for all families of models."""
