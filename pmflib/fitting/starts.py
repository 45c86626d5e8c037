"""Starts of EM, made from counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache

import numpy as np

from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.counting.pair_counts import PairCounts
from pmflib.em.loop import open_for_em
from pmflib.fitting.from_pairs import fit
from pmflib.solvers.pairs.random_start import start_random


class Starts:
    """Models to start from, by kind: a method of `fit`, opened so that EM is barred from nothing.

    Parameters
    ----------
    load_counts
        Gives the co-occurrence counts of the training samples; called when a start needs them, for they may be large.
    singles
        float64 of shape (n_levels,), PMF of each variable.
    offsets
        int64 of shape (n_variables + 1,).
    rank
        Number of latent states.
    seed
        Of all starts; the k-th of a kind has its own stream of random numbers.
    made
        Starts made before, the first of their kind.
    methods
        What made them, where that is not the name of their kind.
    """

    def __init__(
        self,
        load_counts: Callable[[], PairCounts],
        singles: FloatArray,
        offsets: IntArray,
        rank: int,
        seed: int,
        made: Mapping[str, Parameters] | None = None,
        methods: Mapping[str, str] | None = None,
    ) -> None:
        self.singles = singles
        self.notes: tuple[str, ...] = ()
        self._methods = dict(methods or {})
        self._load_counts = cache(load_counts)
        self._offsets, self._rank, self._seed = offsets, rank, seed
        self._made = {(kind, 0): model for kind, model in (made or {}).items()}

    def __call__(self, kind: str, number: int) -> list[Parameters]:
        """Return some starts of a kind; a kind without randomness gives equal ones."""
        return [self._make(kind, k) for k in range(number)]

    def name_methods(self, kinds: Iterable[str]) -> str:
        """What made the starts of some kinds: "auto" names the method that it came to."""
        return "/".join(dict.fromkeys(self._methods.get(kind, kind) for kind in kinds))

    def _make(self, kind: str, k: int) -> Parameters:
        if (kind, k) not in self._made:
            generator = np.random.default_rng([self._seed, k])
            self._made[kind, k] = self._draw(kind, generator)
        return self._made[kind, k]

    def _draw(self, kind: str, rng: np.random.Generator) -> Parameters:
        if kind == "random":
            return start_random(self.singles, self._offsets, rank=self._rank, rng=rng)
        found = fit(self._load_counts(), self._rank, method=kind, rng=rng)
        self.notes += tuple(note for note in found.notes if note not in self.notes)
        self._methods[kind] = found.method
        model = found.model.prior, found.model.factors
        return model if found.method == "random" else open_for_em(model, self.singles)
