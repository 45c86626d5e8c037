"""Pair and triple counts, and the marginals and tables computed from them."""
