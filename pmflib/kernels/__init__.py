"""Compiled loops: arrays in, arrays out, allocated by the caller."""
