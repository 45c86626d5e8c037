"""Candidates of a fit by EM: start methods, pseudo-counts and combinations that are compared on held-out samples."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from pmflib.core.arrays import Parameters
from pmflib.core.comparison import Comparison
from pmflib.core.defaults import DEFAULT_PSEUDO_COUNT, FIT_SAMPLES
from pmflib.core.errors import PmfError
from pmflib.core.methods import MEMBER_START_METHODS

DRAWN = ("merged", "random")
"""Starts of a small fit that are others every time: those of `merge_alike_states`, and random ones."""

SMALL_WORK = 4_000_000
"""Observed cells times rank up to which a fit is small."""

N_RANDOM = 4
"""Random starts that a fit from one start is compared with where nothing is held out."""

PLENTY = 1000
"""Observed cells per free parameter from which there is nothing to choose: pseudo-counts and passes do not matter."""

MAX_KEPT = 8
"""Best optima of a small fit that more starts are made of, and that other pseudo-counts and all samples go on from."""

TRIAL_SHARE = 0.25
"""Share of the search for the best optimum that is made where a fit only serves to choose the pseudo-count."""

LARGEST_PAIRS = 10
"""Entries of the table of pairs per observed cell up to which "auto" may start from it: a larger one takes most of the
time, and more memory than all else, and has next to nothing in most entries."""

START_METHODS = ("auto", "random")
"""Methods of `fit` whose starts "auto" compares for a single model; for members it compares `MEMBER_START_METHODS`."""


@dataclass(frozen=True)
class FitSpecification:
    """How to fit; enough to do it again on other samples.

    Parameters
    ----------
    starts
        Start method, and number of starts, of each model that runs; "merged" are those of `merge_alike_states`. Of a
        small fit that was not made yet, the methods alone.
    pseudo_count
        Mean pseudo-count per level and state.
    passes
        Number of passes; None is until the objective has converged.
    combination
        What is made of several runs: their "average" as one model of summed rank, or the "best" by the objective.
    notes
        What was compared, one sentence each.
    score
        Held-out log-likelihood of the model that it led to, nats per sample; None where nothing was held out.
    comparisons
        What was compared, with all scores.
    share
        Share of the other variables' log-likelihood that a fit for a target takes off; None is a fit by EM.
    n_random
        Random starts, part of whose passes are made after a single run: the fit goes on from one that is better.
    models
        Optima of a small fit, from which other samples go on; or the fit that held-out samples have evaluated, which a
        fit of other samples must not be worse than.
    """

    starts: tuple[tuple[str, int], ...]
    pseudo_count: float
    passes: int | None = None
    combination: str = "average"
    notes: tuple[str, ...] = ()
    score: float | None = None
    comparisons: tuple[Comparison, ...] = ()
    share: float | None = None
    n_random: int = 0
    models: tuple[Parameters, ...] = field(default=(), compare=False, repr=False)

    @property
    def n_models(self) -> int:
        """Number of models that were combined, or that the best was taken of."""
        return sum(number for _, number in self.starts)

    @property
    def is_final(self) -> bool:
        """Whether EM would take the model apart."""
        return self.combination == "average" and self.n_models > 1


@dataclass(frozen=True)
class Options:
    """Candidates that a fit chooses from.

    Parameters
    ----------
    start_methods
        Start methods to compare, at least one; the first is the one that pseudo-counts are compared from. See
        `methods`.
    pseudo_counts
        Mean pseudo-counts per level and state to compare, rising, at least one.
    members
        Number of models to average; 1 is a single model.
    small
        Whether to search for the best optimum; else runs stop early, at the pass that is best on the held-out samples.
    from_pairs
        Whether "auto" may start from all pairs; see `methods`.
    trial
        Whether the fit only serves to choose, so that a small one searches for `TRIAL_SHARE` as long.
    """

    start_methods: tuple[str, ...]
    pseudo_counts: tuple[float, ...] = FIT_SAMPLES
    members: int = 1
    small: bool = False
    from_pairs: bool = True
    trial: bool = False

    @classmethod
    def make(
        cls, start: str, pseudo_count: float | Literal["auto"], members: int, rank: int
    ) -> Options:
        """List what a start method and a pseudo-count leave open, where they may be "auto"."""
        if isinstance(pseudo_count, str) and pseudo_count != "auto":
            raise PmfError(
                f"pseudo_count is {pseudo_count!r}; give a number of at least 0, or 'auto'"
            )
        methods: tuple[str, ...] = (start,)
        if start == "auto" and rank > 1:
            methods = MEMBER_START_METHODS if members > 1 else START_METHODS
        return cls(methods, FIT_SAMPLES if pseudo_count == "auto" else (pseudo_count,), members)

    def fit_to(self, n_observed: int, rank: int, n_levels: int) -> Options:
        """Run several starts where the samples, of so many observed cells, are few enough; see `LARGEST_PAIRS` too."""
        small = (
            len(self.start_methods) > 1 and self.members == 1 and n_observed * rank <= SMALL_WORK
        )
        is_left_open = len(self.start_methods) > 1 or self.start_methods == START_METHODS[:1]
        from_pairs = not is_left_open or n_levels**2 <= LARGEST_PAIRS * n_observed
        return replace(self, small=small, from_pairs=from_pairs)

    @property
    def methods(self) -> tuple[str, ...]:
        """Start methods that are compared: those that were asked for, or, without all of the pairs, random starts.

        Single large fits, whose passes take as long, also start from a few iterations on some of the pairs.
        """
        if self.from_pairs:
            return self.start_methods
        is_single_large = len(self.start_methods) > 1 and self.members == 1 and not self.small
        return MEMBER_START_METHODS if is_single_large else ("random",)

    @property
    def methods_of_small(self) -> tuple[str, ...]:
        """Start methods of a small fit."""
        return (self.start_methods[0], *DRAWN) if self.from_pairs else DRAWN

    @property
    def n_models(self) -> int:
        """Models that are held at a time, at most."""
        return MAX_KEPT if self.small else self.members

    @property
    def n_random(self) -> int:
        """Random starts that a fit from one start is compared with where nothing is held out."""
        return N_RANDOM if len(self.start_methods) > 1 and self.members == 1 else 0

    @property
    def is_open(self) -> bool:
        """Whether held-out samples could decide anything: of a small fit's optima the objective decides."""
        if self.small:
            return len(self.pseudo_counts) > 1
        return len(self.start_methods) > 1 or len(self.pseudo_counts) > 1 or self.members > 1

    def settle(self) -> FitSpecification:
        """Give the specification to follow without held-out samples."""
        pseudo_count = (
            self.pseudo_counts[0] if len(self.pseudo_counts) == 1 else DEFAULT_PSEUDO_COUNT
        )
        if self.small:
            starts = tuple((method, 0) for method in self.methods_of_small)
            return FitSpecification(starts, pseudo_count, combination="best")
        starts = ((self.methods[0], self.members),)
        return FitSpecification(starts, pseudo_count, n_random=self.n_random)


def is_plenty(n_observed: int, n_levels: int, rank: int) -> bool:
    """Whether there are so many samples that nothing is left to choose."""
    return n_observed >= PLENTY * n_levels * rank
