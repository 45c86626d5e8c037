"""Expectation-maximisation (EM) for all families of models."""

from pmflib.base.faces import make_face

__all__ = ["StoredSamples"]

__getattr__, __dir__ = make_face(__name__)
