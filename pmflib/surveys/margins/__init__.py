"""Known margins: samples, counts and models raked to them."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
