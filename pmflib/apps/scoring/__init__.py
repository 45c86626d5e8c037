"""Scoring of files of any size with a model, into Parquet or CSV files."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
