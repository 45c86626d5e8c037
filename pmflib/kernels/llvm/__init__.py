"""What reaches below plain numba: see docs/kernels.md."""
