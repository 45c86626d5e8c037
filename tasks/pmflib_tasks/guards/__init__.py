"""Guards: whether new data may be fitted to. Counts and accounts of rows in, findings out."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
