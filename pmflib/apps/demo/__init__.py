"""Synthetic data with known parameters: models, raw logs and label logs."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
