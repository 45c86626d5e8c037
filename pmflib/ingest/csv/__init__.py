"""CSV files as people write them: encodings, dialects, rows that do not fit."""
