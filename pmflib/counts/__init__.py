"""Pair and triple counts, and the marginals and tables computed from them."""

from typing import TYPE_CHECKING

from pmflib.base.faces import make_face

if TYPE_CHECKING:
    from pmflib.counts.marginals import Marginals
    from pmflib.counts.pair_counts import PairCounts, count_pairs
    from pmflib.counts.triple_counts import count_triples

_HOMES = {
    "Marginals": "pmflib.counts.marginals",
    "PairCounts": "pmflib.counts.pair_counts",
    "count_pairs": "pmflib.counts.pair_counts",
    "count_triples": "pmflib.counts.triple_counts",
}

__all__ = ["Marginals", "PairCounts", "count_pairs", "count_triples"]

__getattr__, __dir__ = make_face(__name__, _HOMES)
