"""Foundations of all packages: errors, arrays, blocks, hashes, tables of methods, held-out comparisons."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
