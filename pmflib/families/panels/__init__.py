"""Waves of panel data: latent states with transitions between waves."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
