"""Items ranked for each person, by a regression on all other items."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
