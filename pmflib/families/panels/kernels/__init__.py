"""Compiled loops over waves."""
