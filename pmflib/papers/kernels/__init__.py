"""Compiled loops of the methods of the papers."""
