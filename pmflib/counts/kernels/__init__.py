"""Compiled loops that count pairs in blocks of rows."""
