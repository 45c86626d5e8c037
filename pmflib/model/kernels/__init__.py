"""Compiled loops of the joint PMF: arrays in, arrays out, allocated by the caller."""
