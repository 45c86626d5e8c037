"""Erasure: samples are removed from everything that a store holds."""
