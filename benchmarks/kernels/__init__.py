"""Compiled loops: what each part gains."""
