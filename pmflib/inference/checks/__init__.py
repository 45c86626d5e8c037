"""Tests of fit: bivariate residuals, likelihood-ratio tests of the rank, diagnostics."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
