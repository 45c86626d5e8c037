"""Computation on Dask: clients, maps with a fixed merge tree, and memory planning."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
