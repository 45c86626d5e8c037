"""Choice of the number of latent classes, on held-out samples, or by pairs if none are held out.

The number is doubled (`pmflib.fits.ranks.by_samples`), each fitted as the final model: by EM, or to its target. Samples
in memory and in a store differ only in how they are split.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Unpack

from pmflib.base.blocks import DenseBlock
from pmflib.base.comparison import Comparison
from pmflib.base.defaults import RANKS_BY_SAMPLES
from pmflib.counts.pair_counts import PairCounts
from pmflib.em.stored_samples import StoredSamples
from pmflib.fits.em_fit import MIN_SAMPLES, EMFit
from pmflib.fits.ranks.by_pairs import select_rank
from pmflib.fits.ranks.by_samples import MAX_RANK, compare_on_samples
from pmflib.fits.ranks.choice import RankChoice, describe_decision
from pmflib.fits.ranks.fit_runs import RunOptions
from pmflib.fits.ranks.sample_fits import (
    MOST_HELD_OUT,
    MOST_SAMPLES,
    RankSamples,
    TargetFits,
    split_samples,
)
from pmflib.store.dataset import take_block

FIRST = 2
"""Rank from which ranks are doubled; independent variables, rank 1, are compared as well."""
MOST_CLASSES = 20
"""Largest rank of a single model without a target: nobody reads more classes, and a stack answers better."""


@dataclass(frozen=True)
class Selection:
    """Chosen number of latent states, with the reasons.

    Parameters
    ----------
    rank
        The choice.
    choice
        Comparison of numbers of states; None if there was nothing to compare by.
    by_samples
        Whether the choice was made on held-out samples.
    """

    rank: int
    choice: RankChoice | None = None
    by_samples: bool = True

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Return all comparisons."""
        return () if self.choice is None else tuple(self.choice.comparisons)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return sentences that explain the choice."""
        if self.choice is not None:
            return (self.choice.reason, *self.choice.notes)
        return (f"rank {self.rank}: too few samples or variables to choose another",)

    @property
    def decision(self) -> str:
        """Return a sentence on whether the rank is adequate, and what to do if it is not."""
        if self.choice is None:
            return self.reasons[0]
        return describe_decision(self.choice, by_samples=self.by_samples)

    def to_json(self) -> dict[str, object]:
        """Return the choice, its reasons and all comparisons in plain JSON types."""
        return {
            "rank": self.rank,
            "judged_by_samples": self.by_samples,
            "verdict": self.decision,
            "reasons": list(self.reasons),
            "comparisons": [each.to_json() for each in self.comparisons],
        }


def select(
    fit: EMFit,
    splits: Sequence[RankSamples],
    load_counts: Callable[[], PairCounts] | None = None,
    *,
    max_rank: int = MOST_CLASSES,
    **run: Unpack[RunOptions],
) -> Selection:
    """Choose the number of latent states of a fit.

    Parameters
    ----------
    fit
        The fit with two states, whose options apply to any larger number.
    splits
        Training and held-out samples, from `split_for_choice`; empty if none can be held out.
    load_counts
        Returns the counts of the training samples by fold, used if no samples are held out; with None, one state is
        chosen, or one per level of a target.
    max_rank
        Largest rank; averages and models of a target may have up to `MAX_RANK`.
    **run
        Fields of `RunOptions`: client, budget, checkpoint and on_progress.

    Raises
    ------
    PmfError
        If there are too few pairs to fit some and hold out others, or no held-out sample has the target.
    """
    options = fit.options
    if splits:
        for_target = None
        target = splits[0].target
        if target is not None and fit.assigns_states and fit.schema[target].cardinality > 1:
            for_target = TargetFits(splits[0], options.pseudo_counts)
        given = options.pseudo_counts
        if target is not None or options.members > 1:
            max_rank = MAX_RANK
        choice = compare_on_samples(
            splits,
            first=FIRST,
            lower=[1],
            pseudo_counts=given if len(given) == 1 else RANKS_BY_SAMPLES,
            max_rank=max_rank,
            members=options.members,
            seed=fit.seed,
            for_target=for_target,
            **run,
        )
        return Selection(choice.rank, choice)
    if load_counts is None:
        # one state per level of a target
        target = fit.target if options.searches else None
        rank = 1 if target is None else fit.schema[target].cardinality
        return Selection(rank)
    choice = select_rank(load_counts(), rng=fit.seed, **run)
    return Selection(choice.rank, choice, by_samples=False)


def split_for_choice(
    fit: EMFit, samples: StoredSamples | DenseBlock, validation: object | None
) -> list[RankSamples]:
    """Split samples into those to which ranks are fitted and those on which they are evaluated.

    Parameters
    ----------
    fit
        The fit, of any rank.
    samples
        Training samples, stored or in memory; stored samples are read in part.
    validation
        Held-out samples, stored or in memory. None holds out some of the samples in memory, and none of stored ones.
    """
    schema, target = fit.schema, fit.target
    held_out = None
    if isinstance(validation, StoredSamples):
        held_out = take_block(validation.blocks, schema, MOST_HELD_OUT)
    elif validation is not None:
        held_out = DenseBlock(schema.encode(validation))
    if not isinstance(samples, StoredSamples):
        if target is not None and held_out is None and len(samples) < MIN_SAMPLES:
            return []
        return split_samples(samples, held_out, schema, target)
    if held_out is None or not samples.n_rows:
        return []
    block = take_block(samples.blocks, schema, MOST_SAMPLES)
    return split_samples(block, held_out, schema, target, pools=True)
