"""Compiled loops of trait models."""
