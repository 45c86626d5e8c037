"""Solvers that estimate the prior and factors from pairwise marginals."""
