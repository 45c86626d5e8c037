"""Starts of EM, made from counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.counting.marginals import normalise_singles
from pmflib.counting.pair_counts import PairCounts, load_singles
from pmflib.fitting.class_start import start_classes
from pmflib.fitting.from_pairs import fit
from pmflib.fitting.merged_starts import WIDENED
from pmflib.solvers.pairs.opening import open_start
from pmflib.solvers.pairs.random_start import start_random


@dataclass(frozen=True)
class StoredCounts:
    """Co-occurrence counts in a store: only the counts of single levels are read before a start needs the pairs.

    Parameters
    ----------
    path
        Folder that `PairCounts.save` wrote.
    folds
        Folds of the training samples; None is all.
    """

    path: Path
    folds: tuple[int, ...] | None = None

    def load(self) -> PairCounts:
        """Read the counts, summed over the folds."""
        return PairCounts.load_total(self.path, folds=self.folds)

    def estimate_singles(self, offsets: IntArray) -> FloatArray:
        """PMF of each variable alone, as `normalise_singles` gives it."""
        return normalise_singles(load_singles(self.path, folds=self.folds), offsets)


class Starts:
    """Models to start from, by start method: a method of `fit`, opened so that EM can move from there to any model.

    "wide" is a random start with `WIDENED` times as many states, for `merge_states`.

    Parameters
    ----------
    load_counts
        Returns the co-occurrence counts of the training samples; called when a start needs them, for they may be large.
    singles
        float64 of shape (n_levels,), PMF of each variable.
    offsets
        int64 of shape (n_variables + 1,).
    rank
        Number of latent states.
    seed
        Seed of all starts; the k-th of a method has its own stream of random numbers.
    made
        Starts that were made before, by method: the first of each.
    methods
        Names of what made them, where these are not the start methods' own: "auto" has chosen another method.
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
        self._made = {(method, 0): model for method, model in (made or {}).items()}

    def __call__(self, method: str, number: int) -> list[Parameters]:
        """Return the first starts of a method; a method without randomness gives equal ones."""
        return [self._find(method, k) for k in range(number)]

    def make_classes(self, target: int) -> Parameters:
        """Return the start for a target, as `start_classes` makes it."""
        rng = np.random.default_rng([self._seed, 0])
        return start_classes(self._load_counts(), target, self._rank, rng)

    def name_methods(self, methods: Iterable[str]) -> str:
        """Names of start methods, joined by slashes: "auto" is named as the method that it has chosen."""
        return "/".join(dict.fromkeys(self._methods.get(method, method) for method in methods))

    def _find(self, method: str, k: int) -> Parameters:
        if (method, k) not in self._made:
            generator = np.random.default_rng([self._seed, k])
            self._made[method, k] = self._make(method, generator)
        return self._made[method, k]

    def _make(self, method: str, rng: np.random.Generator) -> Parameters:
        if method in ("random", "wide"):
            rank = self._rank * (WIDENED if method == "wide" else 1)
            return start_random(self.singles, self._offsets, rank=rank, rng=rng)
        found = fit(self._load_counts(), self._rank, method=method, rng=rng)
        self.notes += tuple(note for note in found.notes if note not in self.notes)
        self._methods[method] = found.method
        model = found.model.prior, found.model.factors
        return model if found.method == "random" else open_for_em(model, self.singles)


def open_for_em(model: Parameters, singles: FloatArray) -> Parameters:
    """Open a fit of the marginals as a start of EM, with nothing ruled out.

    A fit of sampled marginals has many zeros, which EM never leaves: a tenth of the prior is spread over all states,
    and a hundredth of every conditional PMF is the variable's own.

    Parameters
    ----------
    model
        Prior (rank,) and factors (n_levels, rank).
    singles
        float64 of shape (n_levels,), PMF of each variable.

    Returns
    -------
    Prior and factors of the same shapes, positive.
    """
    return open_start(model, singles[:, None], prior_share=0.1, factor_share=0.01)
