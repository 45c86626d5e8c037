"""The methods of the papers, as functions of arrays: SPA, CNMF-OPT, mirror descent, SymNMF, triples, the NMF rank."""

from typing import TYPE_CHECKING

from pmflib.base.faces import make_face

if TYPE_CHECKING:
    from pmflib.papers.nmf_rank import NMFRank, select_nmf_rank

_HOMES = {
    "NMFRank": "pmflib.papers.nmf_rank",
    "select_nmf_rank": "pmflib.papers.nmf_rank",
}

__all__ = ["NMFRank", "select_nmf_rank"]

__getattr__, __dir__ = make_face(__name__, _HOMES)
