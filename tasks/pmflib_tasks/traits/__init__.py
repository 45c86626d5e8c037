"""Stages of trait models."""
