"""Drafts of schemas and configurations."""
