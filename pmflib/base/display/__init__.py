"""Summaries of results as tables, in HTML for notebooks and as text for terminals: one way to make a table for both."""
