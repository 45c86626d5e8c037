"""Expectation-maximisation over samples."""
