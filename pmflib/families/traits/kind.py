"""Continuous traits as a kind of model of `pmflib.fit_em`, and the search over their number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pmflib.base.arrays import FloatArray
from pmflib.base.blocks import DenseBlock
from pmflib.base.comparison import compare_samples
from pmflib.base.defaults import DEFAULT_PSEUDO_COUNT
from pmflib.em.block_source import BlocksInMemory
from pmflib.em.stored_samples import StoredSamples
from pmflib.families.traits.item_responses import fit_item_responses, fit_items
from pmflib.families.traits.quadrature import GRIDS, ItemDesign
from pmflib.fits.em_fit import EMFit
from pmflib.fits.fit_result import FitResult
from pmflib.fits.kinds import FitKind
from pmflib.fits.ranks.by_samples import SampleSearch
from pmflib.fits.ranks.choice import OnRankProgress, RankProgress
from pmflib.fits.ranks.fit_runs import WorkBudget
from pmflib.fits.ranks.kinds import EXCLUSION_ERRORS, PSEUDO_COUNT, Candidate, list_classes
from pmflib.fits.ranks.sample_fits import RankSamples

MAX_UPDATE_WORK = 20_000_000
"""Maximum number of multiplications in a Newton step of all variables, over all splits, for a number of traits to be
tried; levels without values have one slope per trait.
"""
MAX_TRAIT_WORK = 600_000_000
"""Maximum observed cells times grid points, over all splits, for a number of traits to be tried: a few seconds."""
TRAIT_PASSES, TRAIT_TOL = 100, 1e-6
"""Maximum number of passes, and relative tolerance, of the compared fits of traits."""


class TraitFits:
    """Fits of one, two and three traits to several splits.

    Parameters
    ----------
    splits
        Splits of the samples.
    seed
        Seed of the starts.
    on_progress
        Called before the fits of each number of traits.
    budget
        Not used: the work of traits has limits of its own.
    """

    def __init__(
        self,
        splits: Sequence[RankSamples],
        seed: int,
        on_progress: OnRankProgress | None,
        budget: WorkBudget,
    ) -> None:
        self._splits, self._seed, self._on_progress = splits, seed, on_progress
        self.candidates: list[Candidate] = []
        self.left_out = ""

    def run(self, classes: SampleSearch | None, others: Sequence[Candidate], members: int) -> None:
        """Fit one, two and three traits if there is no target and models are not averaged.

        See `pmflib.fits.ranks.kinds.KindSearch`.
        """
        if classes is None or members > 1 or (not others and classes.find_least() == 1):
            # if one class leaves only noise between the variables, there is nothing to explain
            return
        known = list_classes(classes, self._splits[0])
        best = max((*known, *others), key=lambda each: float(each.scores.mean()))
        self._fit(known[0].scores, best.scores)

    def fill_in(self, rank: int) -> bool:
        """Return that all numbers of traits have been fitted."""
        return False

    def _fit(self, before: FloatArray, best: FloatArray) -> None:
        """Fit further traits as long as each improves the held-out likelihood beyond chance.

        If people differ in kind, traits are far worse, and their fits are expensive: they are abandoned after the first
        split if further traits with the same gain would not come close to the best. There are none for fewer than three
        variables or many levels.

        Parameters
        ----------
        before, best
            float64, log-likelihood of each held-out sample, of all splits, under variables alone, and under the best
            candidate so far.
        """
        splits, on_progress = self._splits, self._on_progress
        schema = splits[0].schema
        n_cells = sum(each.n_observed for each in splits)
        for n_traits, (n_points, _) in GRIDS.items():
            design = ItemDesign(schema, n_traits)
            if n_cells * n_points**n_traits > MAX_TRAIT_WORK or n_traits > schema.n_variables // 3:
                break
            if len(splits) * design.update_work > MAX_UPDATE_WORK:
                break
            if on_progress is not None:
                doing, tried = f"{n_traits} traits", tuple(range(1, n_traits + 1))
                on_progress(RankProgress("samples", doing, tried, n_traits - 1, n_traits, None))
            first = _fit_traits(splits[0], design, self._seed)
            gain = max(float((first - before[: first.size]).mean()), 0.0)
            gap = compare_samples(best[: first.size], first)
            if gap.mean - (max(GRIDS) - n_traits) * gain > EXCLUSION_ERRORS * gap.error:
                behind = f"{gap.mean:.2g} +- {gap.error:.2g} below the best"
                self.left_out = (
                    f"traits were given up at {n_traits}, {behind} in the first of the folds"
                )
                break
            others = [_fit_traits(each, design, self._seed) for each in splits[1:]]
            reached = Candidate(
                "traits",
                n_traits,
                design.n_parameters,
                np.concatenate([first, *others]),
                # behind models with one class more than there are traits, which have nearly as many parameters and
                # fit as well if people differ in kind
                n_traits * (n_traits + 1) // 2,
            )
            self.candidates.append(reached)
            if n_traits > 1:
                more = compare_samples(reached.scores, before)
                if more.mean <= more.error:
                    break
            before = reached.scores


def _fit_traits(samples: RankSamples, design: ItemDesign, seed: int) -> FloatArray:
    """Return the log-likelihood of the held-out part of a split under traits fitted to the rest, nats."""
    schema = samples.schema
    fitted, _ = fit_items(
        BlocksInMemory.cut(samples.block, schema.offsets, len(design.grid[0])),
        design,
        samples.counts,
        pseudo_count=PSEUDO_COUNT,
        max_passes=TRAIT_PASSES,
        tol=TRAIT_TOL,
        seed=seed,
    )
    return samples.score(fitted)


def fit_traits_by_em(
    fit: EMFit, training: StoredSamples | DenseBlock, validation: object | None
) -> FitResult:
    """Fit as many traits as the rank of a fit, with its pseudo-count and passes."""
    given, passes = fit.options.pseudo_counts, fit.passes
    return fit_item_responses(
        training,
        fit.rank,
        schema=fit.schema,
        validation=validation,
        pseudo_count=float(given[0]) if len(given) == 1 else DEFAULT_PSEUDO_COUNT,
        max_passes=passes.max_passes,
        tol=passes.tol,
        seed=fit.seed,
        checkpoint=passes.checkpoint,
        on_pass=passes.on_pass,
    )


TRAITS = FitKind("traits", TraitFits, fit=fit_traits_by_em)
"""Independence given one to three continuous traits."""
