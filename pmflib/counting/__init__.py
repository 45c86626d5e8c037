"""Pair and triple counts, and what is read off them."""
