"""Scores of files: the rows of files of any size, scored by a model into Parquet or CSV files."""
