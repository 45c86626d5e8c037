"""Items ranked for each person, by a model or by counts of pairs."""
