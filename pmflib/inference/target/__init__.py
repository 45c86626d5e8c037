"""Fits that predict one variable: cuts, held-out scores, rivals."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
