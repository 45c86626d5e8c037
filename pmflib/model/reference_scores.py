"""Reference for the scores of rows: those of samples that the model was not fitted to, for percentiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.errors import PmfError
from pmflib.model.evaluation import draw_cells
from pmflib.store.zarr_arrays import read_arrays, write_arrays

if TYPE_CHECKING:
    from pmflib.model import JointPMF
    from pmflib.model.row_scores import RowScorer

REFERENCE = "reference"
"""Zarr group of the scores, in the folder of their artefact."""
KIND = "reference scores"
"""Attribute ``kind`` of the Zarr group."""
HELD_OUT = "held-out samples"
DRAWN = "samples drawn from the model"
KEPT = 50_000
"""Reference samples, at most, give or take: the standard error of a percentile is then 0.22 at most, in one band."""
THIN_BELOW = 0.005
"""Share of the reference samples with the fewest observed cells, whose place thinned samples take."""
BAND_ROWS = 1000
"""Least number of reference samples in a band."""
MAX_BANDS = 16
"""Bands of samples by the number of their observed cells, at most."""
DRAWN_ROWS = KEPT
"""Samples drawn from a model that comes without a reference."""
THIN_SEED = 0x5EED
"""Which cells of a reference sample are hidden to thin it."""


@dataclass(frozen=True, eq=False)
class ReferenceScores:
    """Scores of reference samples, in bands of about as many observed cells.

    Rows are compared with reference samples of their band: with few observed cells, scores have another distribution
    than with many, even when their mean and standard deviation agree.

    Parameters
    ----------
    surprises
        float64 of shape (n_samples,): scores as in `RowScores`, those of a band increasing.
    bands
        int64 of shape (n_bands + 1,): the samples of band b are ``surprises[bands[b]:bands[b + 1]]``.
    edges
        int64 of shape (n_bands - 1,): least number of observed cells in each band but the first, increasing.
    origin
        What the samples are: ``HELD_OUT`` or ``DRAWN``.
    """

    surprises: FloatArray
    bands: IntArray
    edges: IntArray
    origin: str

    @classmethod
    def make(
        cls, parts: Sequence[tuple[FloatArray, IntArray, FloatArray, IntArray]], origin: str
    ) -> ReferenceScores:
        """Sort scores into bands.

        Parameters
        ----------
        parts
            What `score_reference` gives for some samples each.
        origin
            As above.

        Returns
        -------
        The reference. Where rows have fewer observed cells than nearly any reference sample, the bands are those of the
        thinned samples.

        Raises
        ------
        PmfError
            If no sample has anything observed.
        """
        surprises = np.concatenate([part[0] for part in parts] or [np.empty(0)])
        counts = np.concatenate([part[1] for part in parts] or [np.empty(0, np.int64)])
        if not surprises.size:
            raise PmfError(
                "no reference sample has an observed cell, and percentiles need one; give other samples"
            )
        least = int(np.quantile(counts, THIN_BELOW, method="lower"))
        thin_surprises = np.concatenate([part[2] for part in parts])
        thin_counts = np.concatenate([part[3] for part in parts])
        natural, thin = counts >= least, thin_counts < least
        edges = [*_cut(thin_counts[thin]), *([least] if thin.any() else []), *_cut(counts[natural])]
        surprises = np.concatenate([thin_surprises[thin], surprises[natural]])
        counts = np.concatenate([thin_counts[thin], counts[natural]])
        band = np.searchsorted(edges, counts, side="right")
        order = np.lexsort((surprises, band))
        bands = np.searchsorted(band[order], np.arange(len(edges) + 2))
        return cls(surprises[order], bands.astype(np.int64), np.array(edges, np.int64), origin)

    @classmethod
    def draw(cls, model: JointPMF) -> ReferenceScores:
        """Scores of samples drawn from a model, for one that comes without held-out samples."""
        from pmflib.model.row_scores import RowScorer

        scorer, codes = RowScorer(model), model.sample(DRAWN_ROWS, 0)
        return cls.make([score_reference(codes, np.arange(len(codes)), scorer)], DRAWN)

    def find_percentiles(self, surprises: FloatArray, n_observed: IntArray) -> FloatArray:
        """Percentiles of scores among the reference samples of their band.

        Parameters
        ----------
        surprises, n_observed
            As for `make`.

        Returns
        -------
        float64 of shape (n_rows,), in [0, 100]: share of the reference samples that are less unusual, and half of those
        that are as unusual; nan where nothing is observed.
        """
        out = np.empty(len(surprises))
        band = np.searchsorted(self.edges, n_observed, side="right") if self.edges.size else None
        for place in range(self.edges.size + 1):
            rows = slice(None) if band is None else np.flatnonzero(band == place)
            known = self.surprises[self.bands[place] : self.bands[place + 1]]
            asked = surprises[rows]
            below = np.searchsorted(known, asked, side="left")
            upto = below.copy()
            alike = np.flatnonzero(known[np.minimum(below, known.size - 1)] == asked)
            upto[alike] = np.searchsorted(known, asked[alike], side="right")
            out[rows] = (below + upto) * (50.0 / known.size)
        out[np.isnan(surprises)] = np.nan
        return out

    def save(self, path: Path) -> None:
        """Write a Zarr group; the folder must not exist."""
        write_arrays(
            path,
            {
                "surprises": (self.surprises, ("sample",)),
                "bands": (self.bands, ("band_edge",)),
                "edges": (self.edges, ("inner_edge",)),
            },
            {"kind": KIND, "units": "standard deviations", "origin": self.origin},
        )

    @classmethod
    def load(cls, path: Path) -> ReferenceScores:
        """Read what `save` wrote.

        Raises
        ------
        StoreError
            If the group is absent, damaged, or holds something else.
        """
        arrays, attributes = read_arrays(path, ["surprises", "bands", "edges"], kind=KIND)
        return cls(arrays["surprises"], arrays["bands"], arrays["edges"], str(attributes["origin"]))


def score_reference(
    codes: IntArray, rows: IntArray, scorer: RowScorer
) -> tuple[FloatArray, IntArray, FloatArray, IntArray]:
    """Score reference samples, as they are and thinned, for `ReferenceScores.make`.

    Parameters
    ----------
    codes
        Shape (n_rows, n_variables), -1 missing.
    rows
        int64 of shape (n_rows,): numbers of the rows, distinct.
    scorer
        Scores of the model.

    Returns
    -------
    Scores and numbers of observed cells; and of the same samples with some of their observed cells hidden: each sample
    keeps a share of its cells, drawn evenly. Rows with nothing observed are left out of both.
    """
    drawn = draw_cells((len(codes), codes.shape[1] + 1), rows, THIN_SEED)
    hidden = drawn[:, :-1] >= drawn[:, -1:]
    thinned = np.where(hidden, -1, codes).astype(codes.dtype)
    return *_score_held(codes, scorer), *_score_held(thinned, scorer)


def _score_held(codes: IntArray, scorer: RowScorer) -> tuple[FloatArray, IntArray]:
    found = scorer.score(codes)
    held = found.n_observed > 0
    return found.surprises[held], found.n_observed[held]


def _cut(counts: IntArray) -> list[int]:
    """Inner edges of bands of about equally many samples, by their number of observed cells."""
    n_bands = max(1, min(MAX_BANDS, counts.size // BAND_ROWS))
    places = np.arange(1, n_bands) * counts.size // n_bands
    edges = np.unique(np.sort(counts)[places]) if counts.size else np.empty(0, np.int64)
    return [int(edge) for edge in edges if edge > counts.min()]
