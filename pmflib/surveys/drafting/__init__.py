"""Drafts of schemas: variables proposed from the values of columns, for a person to review."""
