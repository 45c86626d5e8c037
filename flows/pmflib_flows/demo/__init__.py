"""Demonstrations on drawn data: the command and its runs."""
