"""The command that answers questions."""
