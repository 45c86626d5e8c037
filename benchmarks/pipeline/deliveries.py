"""A rating log that is delivered night by night: samples arrive over time, and some return."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.errors import PmfError
from pmflib.model.sampling import sample_codes

NIGHT_SECONDS = 24 * 3600
"""Seconds between deliveries."""


@dataclass(frozen=True)
class Deliveries:
    """How a log is delivered.

    Parameters
    ----------
    n_triples
        Ratings in all, about, at least one a night.
    n_nights
        Number of deliveries, at least 1.
    per_sample
        Ratings of a sample, on average, at most one of each variable.
    returning
        Probability that a sample returns on one later night, in [0, 1]: it then gives half of its ratings.

    Raises
    ------
    PmfError
        If a number is out of range.
    """

    n_triples: int
    n_nights: int
    per_sample: float
    returning: float = 0.05

    def __post_init__(self) -> None:
        if self.n_nights < 1 or self.n_triples < self.n_nights:
            raise PmfError(
                f"n_triples is {self.n_triples}, n_nights is {self.n_nights}; pass at least one night, and as many "
                "triples as nights"
            )
        if self.per_sample <= 0 or not 0 <= self.returning <= 1:
            raise PmfError(
                f"per_sample is {self.per_sample}, returning is {self.returning}; pass a number above 0, and one from "
                "0 to 1"
            )

    def draw(
        self, prior: FloatArray, factors: FloatArray, offsets: IntArray, rng: np.random.Generator
    ) -> Iterator[pa.Table]:
        """Draw the deliveries, one at a time.

        Parameters
        ----------
        prior
            Probabilities of shape (rank,).
        factors
            Probabilities of shape (n_levels, rank).
        offsets
            int64 of shape (n_variables + 1,).
        rng
            Source of randomness.

        Yields
        ------
        Columns user and ts (int64, seconds), movie (text m001, m002, ...) and rating (int64, from 1), in no order. No
        sample rates a variable twice.
        """
        n_variables = offsets.size - 1
        share = min(1.0, self.per_sample / n_variables)
        n_samples = max(1, round(self.n_triples / self.n_nights / (share * n_variables)))
        names = pa.array([f"m{variable:03}" for variable in range(1, n_variables + 1)])
        waiting: list[list[IntArray]] = [[] for _ in range(self.n_nights)]
        for night in range(self.n_nights):
            codes = sample_codes(prior, factors, offsets, n_samples, rng, observed=share)
            users, movies = np.nonzero(codes >= 0)
            rows = np.column_stack(
                [users + night * n_samples, movies, codes[users, movies] + 1]
            ).astype(np.int64)
            later = np.full(n_samples, night)
            if night + 1 < self.n_nights:
                returns = rng.random(n_samples) < self.returning
                later[returns] = rng.integers(night + 1, self.n_nights, returns.sum())
            given = np.where(rng.random(len(rows)) < 0.5, later[users], night)
            for when in np.unique(given):
                waiting[when].append(rows[given == when])
            delivered = rng.permutation(np.concatenate(waiting[night]))
            waiting[night] = []
            times = night * NIGHT_SECONDS + rng.integers(0, NIGHT_SECONDS, len(delivered))
            yield pa.table(
                {
                    "user": delivered[:, 0],
                    "movie": names.take(pa.array(delivered[:, 1])),
                    "rating": delivered[:, 2],
                    "ts": times,
                }
            )
