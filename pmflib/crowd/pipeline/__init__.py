"""What exists only for label logs in a store."""
