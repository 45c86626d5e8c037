"""Relations of latent classes to other variables, corrected for errors of classification."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
