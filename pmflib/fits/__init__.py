"""From counts and samples to a model."""

from typing import TYPE_CHECKING

from pmflib.base.faces import make_face

if TYPE_CHECKING:
    from pmflib.fits.fit_result import FitResult
    from pmflib.fits.from_counts import fit, fit_triples
    from pmflib.fits.from_samples import distil, fit_em
    from pmflib.fits.ranks.by_pairs import select_rank
    from pmflib.fits.ranks.choice import RankChoice

_HOMES = {
    "FitResult": "pmflib.fits.fit_result",
    "RankChoice": "pmflib.fits.ranks.choice",
    "distil": "pmflib.fits.from_samples",
    "fit": "pmflib.fits.from_counts",
    "fit_em": "pmflib.fits.from_samples",
    "fit_triples": "pmflib.fits.from_counts",
    "select_rank": "pmflib.fits.ranks.by_pairs",
}

__all__ = ["FitResult", "RankChoice", "distil", "fit", "fit_em", "fit_triples", "select_rank"]

__getattr__, __dir__ = make_face(__name__, _HOMES)
