"""The methods of the papers, as functions of arrays: SPA, CNMF-OPT, mirror descent, SymNMF, triples, the NMF rank."""

from pmflib.base.faces import make_face

__all__ = ["NMFRank"]

__getattr__, __dir__ = make_face(__name__)
