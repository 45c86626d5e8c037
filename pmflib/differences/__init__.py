"""What differs between two runs: files, rows, schemas, options, distributions, pairs, models, scores."""
