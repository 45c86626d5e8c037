"""Missing answers drawn several times, and estimates pooled over the draws."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
