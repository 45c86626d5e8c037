"""From counts and samples to a model."""

from pmflib.base.faces import make_face

__all__ = [
    "FitResult",
    "RankChoice",
    "distil",
    "fit",
    "fit_em",
    "fit_triples",
    "select_nmf_rank",
    "select_rank",
]

__getattr__, __dir__ = make_face(__name__)
