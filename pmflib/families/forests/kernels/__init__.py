"""Compiled loops of forests: messages along the edges, and the statistics of a pass."""
