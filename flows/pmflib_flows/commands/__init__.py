"""The verbs of the command `pmf`, by what they are about."""
