"""The command that hands on counts."""
