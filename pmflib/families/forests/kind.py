"""Forests as a kind of model of `pmflib.fit_em`, and the search over numbers of states with forests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from pmflib.base.arrays import FloatArray
from pmflib.base.comparison import compare_samples
from pmflib.base.defaults import LIMITS
from pmflib.em.block_source import BlocksInMemory
from pmflib.families.forests.dependence import fit_dependence, refine_forests
from pmflib.families.forests.em import TreeOptions, are_modest, load_samples, plan_trees
from pmflib.families.forests.stack import ForestRung, mix_forests, offer_forests
from pmflib.families.forests.tree_fit import MOST_STARTS, TreeFit, estimate_best_start
from pmflib.families.forests.tree_pmf import TreePMF
from pmflib.fits.criteria import count_parameters
from pmflib.fits.kinds import FitKind
from pmflib.fits.pair_residuals import find_residuals
from pmflib.fits.ranks.by_samples import SampleSearch
from pmflib.fits.ranks.choice import OnRankProgress, RankProgress
from pmflib.fits.ranks.fit_runs import WorkBudget
from pmflib.fits.ranks.kinds import EXCLUSION_ERRORS, PSEUDO_COUNT, Candidate
from pmflib.fits.ranks.sample_fits import RankSamples
from pmflib.model import JointPMF

MAX_FORESTS = 64
"""Maximum number of states with forests."""
SPLITS_TO_TELL = 2
"""Number of splits after which a larger number of states with forests is abandoned if it is worse by a standard
error.
"""
FOREST_RESOLUTION = 6
"""States with forests are compared to a relative precision of 1 / ``FOREST_RESOLUTION``, and at least to 1."""


class ForestFits:
    """Fits of states with forests to several splits.

    Parameters
    ----------
    splits
        Splits of the samples.
    seed
        Seed of the starts.
    on_progress
        Called before each fit.
    budget
        Budget of processor time; numbers of states whose fits would exceed it are not tried.
    """

    def __init__(
        self,
        splits: Sequence[RankSamples],
        seed: int,
        on_progress: OnRankProgress | None,
        budget: WorkBudget,
    ) -> None:
        self.splits, self._seed, self._on_progress = splits, seed, on_progress
        self._budget, self.left_out = budget, ""
        self._found: dict[tuple[int, int], tuple[FloatArray, int]] = {}

    @cached_property
    def _samples(self) -> list[tuple[BlocksInMemory, list[BlocksInMemory]]]:
        """Return the training samples of each split, and two halves of its held-out samples."""
        offsets = self.splits[0].schema.offsets
        return [
            (
                load_samples(each.block, offsets, 1),
                [
                    load_samples(each.held_out[half], offsets, 1, each.target)
                    for half in _halve(each)
                ],
            )
            for each in self.splits
        ]

    @property
    def candidates(self) -> list[Candidate]:
        """Return the ranks fitted to all splits, in order."""
        n_splits = len(self.splits)
        complete = sorted({rank for rank, split in self._found if split == n_splits - 1})
        return [
            Candidate(
                "forests",
                rank,
                self._found[rank, 0][1],
                self._join(rank, n_splits),
            )
            for rank in complete
        ]

    def affords(self, rank: int, n_splits: int | None = None) -> bool:
        """Return whether the budget suffices for the fits of a rank to the first splits; if not, it is noted."""
        splits = range(len(self.splits) if n_splits is None else n_splits)
        cost = sum(
            self._estimate(rank, split) for split in splits if (rank, split) not in self._found
        )
        if self._budget.affords(cost):
            return True
        self.left_out = (
            f"forests within {rank} or more states were not tried: they would take about {cost:,.0f} s of processor "
            "time, more than the budget has left"
        )
        return False

    def _estimate(self, rank: int, split: int) -> float:
        """Estimate the time of the fits of a rank to a split by the cost model, seconds."""
        training, halves = self._samples[split]
        return len(halves) * estimate_best_start(training, rank, MOST_STARTS // len(halves))

    def run(self, classes: SampleSearch | None, others: Sequence[Candidate], members: int) -> None:
        """Double the number of states as long as it gains: see `pmflib.fits.ranks.kinds.KindSearch`."""
        most = MAX_FORESTS if classes is None else self._limit(classes)
        self.double(most, needs_one=classes is None)

    def _limit(self, classes: SampleSearch) -> int:
        """Return the number of states up to which forests have fewer parameters than the best classes."""
        least = classes.find_least()
        point = classes.find_best_fit(least)
        samples = self.splits[0]
        model = JointPMF(*classes.list_parameters(point)[0], samples.schema)
        if samples.counts is None or find_residuals(model, samples.counts).list_large():
            return MAX_FORESTS
        # with as many states as classes, forests have more parameters, and there is nothing left for them to explain
        most = 1 << (least - 1).bit_length() >> 1
        if most > 1 and self.affords(most, n_splits=1):
            mine = self.score(most, 0)
            gap = compare_samples(classes.list_scores(point)[: mine.size], mine)
            if gap.mean > EXCLUSION_ERRORS * gap.error:
                return 0
        return most if least > 1 else 0

    def double(self, most: int, *, needs_one: bool = False) -> None:
        """Double the rank as long as it gains, up to a limit; each rank is twice as expensive as the last.

        With ``needs_one``, the first is fitted even if the budget does not suffice.
        """
        rank, offsets = 1, self.splits[0].schema.offsets
        while rank <= most and are_modest(offsets, rank):
            if not ((needs_one and rank == 1) or self.affords(rank)):
                break
            if not self._gains(rank, rank // 2):
                break
            rank *= 2

    def _gains(self, rank: int, less: int) -> bool:
        """Return whether a rank is better than a smaller one, evaluated split by split."""
        scores: list[FloatArray] = []
        for split in range(len(self.splits)):
            scores.append(self.score(rank, split))
            if less and SPLITS_TO_TELL <= len(scores) < len(self.splits):
                behind = compare_samples(self._join(less, len(scores)), np.concatenate(scores))
                if behind.is_distinct:
                    return False
        mine = np.concatenate(scores)
        return not less or bool(mine.mean() > self._join(less, len(self.splits)).mean())

    def _join(self, rank: int, n_splits: int) -> FloatArray:
        """Return the log-likelihoods of the held-out samples of the first splits, nats."""
        return np.concatenate([self.score(rank, split) for split in range(n_splits)])

    def fill_in(self, rank: int) -> bool:
        """Fit the rank half-way to the next smaller one; returns whether there was one worth fitting."""
        below = max((each.rank for each in self.candidates if each.rank < rank), default=0)
        middle = (rank + below) // 2
        if middle in (0, rank, below) or rank - below <= max(1, rank // FOREST_RESOLUTION):
            return False
        if not self.affords(middle):
            return False
        self._join(middle, len(self.splits))
        return True

    def score(self, rank: int, split: int) -> FloatArray:
        """Return the log-likelihoods of the held-out samples of a split, nats."""
        if (rank, split) not in self._found:
            self._found[rank, split] = self._fit_split(rank, split)
        return self._found[rank, split][0]

    def _fit_split(self, rank: int, split: int) -> tuple[FloatArray, int]:
        """Return the scores of a rank on the held-out part of a split, and its number of free parameters.

        One half chooses starts and passes and the other is scored, then vice versa: choosing the best of many starts on
        the same samples would favour larger numbers of starts by chance.
        """
        if self._on_progress is not None:
            ranks = tuple(sorted({*(each for each, _ in self._found), rank}))
            doing, n_done = f"rank {rank} with forests", len(self._found)
            self._on_progress(RankProgress("samples", doing, ranks, n_done, n_done + 1, None))
        samples = self.splits[split]
        training, halves = self._samples[split]
        self._budget.spend(self._estimate(rank, split))
        places = _halve(samples)
        scores, sizes = np.empty(len(samples.held_out)), []
        for turn, chooser in enumerate(halves):
            seed = 2 * self._seed + turn
            fit = TreeFit(training, chooser, samples.singles, rank, seed, LIMITS)
            options = TreeOptions(pseudo_count=PSEUDO_COUNT)
            run = fit.find_best_start(options, MOST_STARTS // len(halves))
            model = TreePMF.make(run.parameters, samples.schema)
            others = places[1 - turn] if len(halves) > 1 else places[turn]
            scores[others] = samples.score(model)[others]
            sizes.append(count_parameters(model))
        return scores, max(sizes)


def _halve(samples: RankSamples) -> list[slice]:
    """Split into every other held-out sample and the rest; a single sample is used for both."""
    return [slice(0, None, 2), slice(1, None, 2)] if len(samples.held_out) > 1 else [slice(None)]


FORESTS = FitKind(
    "forests",
    ForestFits,
    dependence="tree",
    within="depend on each other along forests",
    is_modest=are_modest,
    extend=fit_dependence,
    refine=refine_forests,
    plan=plan_trees,
    offer=offer_forests,
    rung=ForestRung,
    mix=mix_forests,
)
"""Forests within states."""
