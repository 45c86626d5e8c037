"""Missing answers of stored samples, drawn several times."""
