"""Whether a new model replaces the live one, and publication."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
