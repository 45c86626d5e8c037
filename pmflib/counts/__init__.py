"""Pair and triple counts, and the marginals and tables computed from them."""

from pmflib.base.faces import make_face

__all__ = ["Marginals", "PairCounts", "count_pairs", "count_triples"]

__getattr__, __dir__ = make_face(__name__)
