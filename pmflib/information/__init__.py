"""The information of samples on the parameters of a model, its inverse, and what each kind of model says of it."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
