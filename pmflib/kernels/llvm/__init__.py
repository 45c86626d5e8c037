"""What reaches below plain numba."""
