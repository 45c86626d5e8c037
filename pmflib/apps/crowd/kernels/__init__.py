"""Compiled loops of label logs."""
