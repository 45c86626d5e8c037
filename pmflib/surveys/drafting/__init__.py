"""Drafts of schemas: variables proposed from the values of columns, for a person to review."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
