"""Starts of EM, made from counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np

from pmflib.counts import PairCounts
from pmflib.em_loop import open_start
from pmflib.fitting import Method, fit
from pmflib.marginals import estimate_singles
from pmflib.squarem import Model


class Starts:
    """Models to start from, by kind: a method of `fit`, opened so that EM is barred from nothing.

    Parameters
    ----------
    counts
        Co-occurrence counts of the training samples.
    rank
        Number of latent states.
    seed
        Of all starts; the k-th of a kind has its own stream of random numbers.
    made
        Starts made before, the first of their kind.
    """

    def __init__(
        self, counts: PairCounts, rank: int, seed: int, made: Mapping[str, Model] | None = None
    ) -> None:
        self.singles = estimate_singles(counts)
        self.notes: tuple[str, ...] = ()
        self._counts, self._rank, self._seed = counts, rank, seed
        self._made = {(kind, 0): model for kind, model in (made or {}).items()}

    def __call__(self, kind: str, number: int) -> list[Model]:
        """Return some starts of a kind; a kind without randomness gives equal ones."""
        return [self._make(kind, k) for k in range(number)]

    def _make(self, kind: str, k: int) -> Model:
        if (kind, k) not in self._made:
            generator = np.random.default_rng([self._seed, k])
            found = fit(self._counts, self._rank, method=cast(Method, kind), rng=generator)
            model = found.model.prior, found.model.factors
            self.notes += tuple(note for note in found.notes if note not in self.notes)
            self._made[kind, k] = (
                model if found.method == "random" else open_start(*model, self.singles)
            )
        return self._made[kind, k]
