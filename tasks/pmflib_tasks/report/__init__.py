"""The report of a run: one HTML page that needs nothing else, for two minutes first, then for an hour."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
