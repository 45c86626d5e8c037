"""Computation on Dask: clients, maps with a fixed merge tree, and memory planning."""
