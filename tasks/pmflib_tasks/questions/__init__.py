"""Answers from stored models and counts."""
