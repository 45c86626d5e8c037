"""Solvers: time, and error of the factors against a known truth."""
