"""From pairwise marginals to prior and factors."""
