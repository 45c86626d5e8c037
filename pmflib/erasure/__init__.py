"""Erasure: samples are taken out of everything that a store holds."""
