"""Commands that draft and change schemas and configurations."""
