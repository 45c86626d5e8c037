"""Items ranked for each person, by a model or by counts of pairs."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
