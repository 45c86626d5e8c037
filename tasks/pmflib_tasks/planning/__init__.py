"""What a run would do and need, before it runs."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
