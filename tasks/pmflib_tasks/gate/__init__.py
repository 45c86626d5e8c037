"""Whether a new model replaces the live one, and publication."""
