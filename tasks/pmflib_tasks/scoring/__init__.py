"""Evaluation of models, their comparison, imputation, and answers about stored samples."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
