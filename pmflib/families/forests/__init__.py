"""Local dependence: latent classes with forests of dependent variables, one shared by all classes or one per class."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
