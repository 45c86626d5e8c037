"""Scoring of files of any size with a model, into Parquet or CSV files."""
