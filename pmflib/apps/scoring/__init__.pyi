"""Scoring of files of any size with a model, into Parquet or CSV files."""

from pmflib.apps.scoring.score_tables import TableScorer as TableScorer
