"""Stages of label logs, their guards and their publication."""
