"""Log-probabilities and anomaly scores of rows, and reference scores for their percentiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pmflib.base.arrays import FLOOR, FloatArray, IntArray, sum_blocks
from pmflib.base.blocks import DenseBlock
from pmflib.base.errors import PmfError
from pmflib.model.marginals import FindSurprises, RowScores
from pmflib.model.mixture import Mixture
from pmflib.model.sampling import draw_cells
from pmflib.store.array_groups import check_expansion, read_arrays
from pmflib.store.zarr_arrays import write_arrays

BATCH_ROWS = 8192
"""Number of rows scored at a time, so that their codes and posteriors stay in the processor's caches."""


LEFT = 1e-12
"""Minimum share of the state's entropy that remains given a variable; below it, the remainder is rounding error."""


class RowScorer:
    """Scorer of rows under a model, with precomputed tables.

    Parameters
    ----------
    model
        The model.
    """

    def __init__(self, model: Mixture) -> None:
        self.model = model

    def score(self, codes: IntArray) -> RowScores:
        """Score rows.

        Parameters
        ----------
        codes
            Shape (n_rows, n_variables), -1 missing.

        Raises
        ------
        SchemaError
            If a code is out of range.
        """
        found = RowScores.reserve(len(codes), self.model.rank)
        for start in range(0, len(codes), BATCH_ROWS):
            rows = slice(start, start + BATCH_ROWS)
            self._score(self.model.schema.check_codes(codes[rows]), found.cut(rows))
        return found

    def _score(self, codes: IntArray, out: RowScores) -> None:
        from pmflib.model.kernels.row_surprises import expect_log_probs

        model = self.model
        model.score_block(DenseBlock(codes), out.log_probs, out.posteriors)
        self._find_surprises(codes, out)
        means, deviations = np.empty(len(codes)), np.empty(len(codes))
        expect_log_probs(
            codes,
            self._log_prior,
            self._gains,
            model.prior,
            means,
            deviations,
            out.n_observed,
            np.empty((2, 4 + model.rank)),
        )
        # rows with only one possible pattern are scored as expected
        unlike = np.maximum(deviations, np.finfo(float).eps * np.maximum(1.0, -means))
        out.surprises[:] = np.where(out.n_observed > 0, (means - out.log_probs) / unlike, np.nan)

    @cached_property
    def _find_surprises(self) -> FindSurprises:
        return self.model.make_surprise_finder()

    @cached_property
    def _log_prior(self) -> FloatArray:
        return np.log(np.maximum(self.model.prior, FLOOR))

    @cached_property
    def _gains(self) -> FloatArray:
        """Contribution of each variable to the expected log-probability of a row: see `expect_log_probs`."""
        model, offsets = self.model, self.model.schema.offsets
        factors = model.factors
        # the mean is exact for complete rows; if a variable's parent is missing, it contributes less than assumed here
        expected, within = model.expect_logs()
        by_state = sum_blocks(factors * np.log(np.maximum(factors, FLOOR)), offsets)
        singles = factors @ model.prior
        logs = np.log(np.maximum(singles, FLOOR))
        means = sum_blocks(singles * logs, offsets)
        alone = sum_blocks(singles * logs**2, offsets) - means**2
        of_state = -float(model.prior @ self._log_prior)
        # mutual information of a variable and the state, at most the entropy of the state
        shared = np.maximum(by_state @ model.prior - means, 0.0)
        left = 1 - shared / of_state if of_state > 0 else np.ones(len(shared))
        return np.column_stack(
            [
                expected @ model.prior,
                np.maximum(within, 0.0) @ model.prior,
                np.maximum(alone, 0.0),
                np.log(np.maximum(left, LEFT)),
                expected,
            ]
        )


REFERENCE = "reference"
"""Name of the Zarr group of the scores in the folder of their artefact."""
KIND = "reference scores"
"""Attribute ``kind`` of the Zarr group."""
HELD_OUT = "held-out samples"
DRAWN = "samples drawn from the model"
KEPT = 50_000
"""Approximate maximum number of reference samples: a percentile in a single band has a standard error up to 0.22."""
THIN_BELOW = 0.005
"""Share of the reference samples, those with the fewest observed cells, that thinned samples replace."""
BAND_ROWS = 1000
"""Minimum number of reference samples in a band."""
MAX_BANDS = 16
"""Maximum number of bands of samples by number of observed cells."""
DRAWN_ROWS = KEPT
"""Number of samples drawn from a model that has no reference scores."""
THIN_SEED = 0x5EED
"""Seed for the choice of cells to hide when thinning a reference sample."""


@dataclass(frozen=True, eq=False)
class ReferenceScores:
    """Scores of reference samples, in bands by number of observed cells.

    Rows are compared with the reference samples of their band, because the distribution of scores depends on the number
    of observed cells even if the mean and standard deviation agree.

    Parameters
    ----------
    surprises
        float64 of shape (n_samples,): scores as in `RowScores`, in increasing order within each band.
    bands
        int64 of shape (n_bands + 1,): the samples of band b are ``surprises[bands[b]:bands[b + 1]]``.
    edges
        int64 of shape (n_bands - 1,): minimum number of observed cells in each band but the first, increasing.
    origin
        Origin of the samples: ``HELD_OUT`` or ``DRAWN``.
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
            Outputs of `score_reference`, one per part of the samples.
        origin
            As above.

        Returns
        -------
        The reference. The bands with fewer observed cells than almost all reference samples consist of thinned samples.

        Raises
        ------
        PmfError
            If no sample has an observed cell.
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
        edges = [
            *_list_edges(thin_counts[thin]),
            *([least] if thin.any() else []),
            *_list_edges(counts[natural]),
        ]
        surprises = np.concatenate([thin_surprises[thin], surprises[natural]])
        counts = np.concatenate([thin_counts[thin], counts[natural]])
        band = np.searchsorted(edges, counts, side="right")
        order = np.lexsort((surprises, band))
        bands = np.searchsorted(band[order], np.arange(len(edges) + 2))
        return cls(surprises[order], bands.astype(np.int64), np.array(edges, np.int64), origin)

    @classmethod
    def draw(cls, model: Mixture) -> ReferenceScores:
        """Score samples drawn from a model, for models without held-out samples."""
        scorer, codes = RowScorer(model), model.sample(DRAWN_ROWS, 0)
        return cls.make([score_reference(codes, np.arange(len(codes)), scorer)], DRAWN)

    def find_percentiles(self, surprises: FloatArray, n_observed: IntArray) -> FloatArray:
        """Return the percentiles of scores among the reference samples of their band.

        Parameters
        ----------
        surprises, n_observed
            As for `make`.

        Returns
        -------
        float64 of shape (n_rows,), in [0, 100]: percentage of the reference samples with a lower score, plus half of
        those with an equal score; NaN if nothing is observed.
        """
        out = np.empty(len(surprises))
        band = np.searchsorted(self.edges, n_observed, side="right") if self.edges.size else None
        for index in range(self.edges.size + 1):
            rows = slice(None) if band is None else np.flatnonzero(band == index)
            known = self.surprises[self.bands[index] : self.bands[index + 1]]
            asked = surprises[rows]
            below = np.searchsorted(known, asked, side="left")
            upto = below.copy()
            alike = np.flatnonzero(known[np.minimum(below, known.size - 1)] == asked)
            upto[alike] = np.searchsorted(known, asked[alike], side="right")
            out[rows] = (below + upto) * (50.0 / known.size)
        out[np.isnan(surprises)] = np.nan
        return out

    def save(self, path: Path) -> None:
        """Write the scores as a Zarr group; the folder must not exist."""
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
        """Read scores written by `save`.

        Raises
        ------
        StoreError
            If the group is missing, damaged, or does not contain reference scores.
        """
        check_expansion(path)
        arrays, attributes = read_arrays(path, ["surprises", "bands", "edges"], kind=KIND)
        return cls(arrays["surprises"], arrays["bands"], arrays["edges"], str(attributes["origin"]))


def score_reference(
    codes: IntArray, rows: IntArray, scorer: RowScorer
) -> tuple[FloatArray, IntArray, FloatArray, IntArray]:
    """Score reference samples, both complete and thinned, for `ReferenceScores.make`.

    Parameters
    ----------
    codes
        Shape (n_rows, n_variables), -1 missing.
    rows
        int64 of shape (n_rows,): numbers of the rows, distinct.
    scorer
        Scorer of the model.

    Returns
    -------
    Scores and numbers of observed cells of the samples, then those of the same samples with some observed cells hidden:
    the share of cells a sample keeps is drawn uniformly. Rows with nothing observed are left out of both.
    """
    drawn = draw_cells((len(codes), codes.shape[1] + 1), rows, THIN_SEED)
    hidden = drawn[:, :-1] >= drawn[:, -1:]
    thinned = np.where(hidden, -1, codes).astype(codes.dtype)
    return *_score_observed(codes, scorer), *_score_observed(thinned, scorer)


def _score_observed(codes: IntArray, scorer: RowScorer) -> tuple[FloatArray, IntArray]:
    found = scorer.score(codes)
    observed = found.n_observed > 0
    return found.surprises[observed], found.n_observed[observed]


def _list_edges(counts: IntArray) -> list[int]:
    """Return the inner edges of bands of about equal size, by number of observed cells."""
    n_bands = max(1, min(MAX_BANDS, counts.size // BAND_ROWS))
    positions = np.arange(1, n_bands) * counts.size // n_bands
    edges = np.unique(np.sort(counts)[positions]) if counts.size else np.empty(0, np.int64)
    return [int(edge) for edge in edges if edge > counts.min()]
