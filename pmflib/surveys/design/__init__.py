"""Sampling weights and survey designs, and variances that follow from them."""
