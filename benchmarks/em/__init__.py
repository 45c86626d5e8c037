"""Passes of expectation-maximisation, and scoring of rows."""
