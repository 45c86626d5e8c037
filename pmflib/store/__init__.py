"""Artefacts on disk: arrays, publication, lineage."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
