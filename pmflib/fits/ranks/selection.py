"""Choice of a model's family and number of states, on held-out samples, or by pairs if none are held out.

Kinds of models are compared first (`pmflib.fits.ranks.kinds`): latent classes, and those that features offer. If that
does not determine the number of states, it is doubled (`pmflib.fits.ranks.by_samples`), each fitted as the
final model: by EM, or to its target. Samples in memory and in a store differ only in how they are split.
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
from pmflib.fits.kinds import choose_kinds, find_kind, is_forced
from pmflib.fits.ranks.by_pairs import select_rank
from pmflib.fits.ranks.by_samples import compare_on_samples
from pmflib.fits.ranks.choice import RankChoice, describe_decision
from pmflib.fits.ranks.fit_runs import DEFAULT_BUDGET, RunOptions, WorkBudget
from pmflib.fits.ranks.kinds import KindChoice, choose_kind
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


@dataclass(frozen=True)
class Selection:
    """Chosen family and number of latent states, with the reasons.

    Parameters
    ----------
    rank, kind
        The choice.
    kinds
        Comparison of families; None if there is only one.
    choice
        Comparison of numbers of states; None if the comparison of families determined it.
    by_samples
        Whether the choice was made on held-out samples.
    """

    rank: int
    kind: str = "classes"
    kinds: KindChoice | None = None
    choice: RankChoice | None = None
    by_samples: bool = True

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Return all comparisons, in that order."""
        made = (self.kinds, self.choice)
        return tuple(each for choice in made if choice is not None for each in choice.comparisons)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return sentences that explain the choice."""
        found = () if self.kinds is None else self.kinds.reasons
        if self.choice is not None:
            return (*found, self.choice.reason, *self.choice.notes)
        return found or (f"rank {self.rank}: too few samples or variables to choose another",)

    @property
    def decision(self) -> str:
        """Return a sentence on whether the rank is adequate, and what to do if it is not."""
        if self.choice is not None:
            return describe_decision(self.choice, by_samples=self.by_samples)
        known = find_kind(self.kind)
        within = "are independent" if known is None else known.within
        return (
            f"{self.rank} latent states, within which variables {within}, have the fewest parameters of all that "
            "held-out samples cannot distinguish from the best"
        )

    def to_json(self) -> dict[str, object]:
        """Return the choice, its reasons and all comparisons in plain JSON types."""
        known = find_kind(self.kind)
        return {
            "rank": self.rank,
            "dependence": (None if known is None else known.dependence) or "none",
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
    dependence: str | None = "none",
    **run: Unpack[RunOptions],
) -> Selection:
    """Choose the family and the number of latent states of a fit.

    Parameters
    ----------
    fit
        The fit with two states, whose options apply to any larger number.
    splits
        Training and held-out samples, from `split_for_choice`; empty if none can be held out.
    load_counts
        Returns the counts of the training samples by fold, used if no samples are held out; with None, one state is
        chosen, or one per level of a target.
    dependence
        Kinds that are compared with latent classes: see `pmflib.fits.kinds.choose_kinds`.
    **run
        Fields of `RunOptions`: client, budget, checkpoint and on_progress.

    Raises
    ------
    PmfError
        If there are too few pairs to fit some and hold out others, or no held-out sample has the target.
    """
    options, kinds, others = fit.options, None, choose_kinds(dependence)
    kind = others[0].name if is_forced(dependence) else "classes"
    if splits:
        run["budget"] = WorkBudget.share(run.get("budget", DEFAULT_BUDGET))
    if others and splits:
        kinds = choose_kind(
            splits,
            others,
            is_forced=is_forced(dependence),
            members=options.members,
            seed=fit.seed,
            **run,
        )
        if kinds is not None:
            kind = kinds.kind
            if kinds.is_final:
                return Selection(kinds.rank, kind, kinds)
    if splits:
        for_target = None
        target = splits[0].target
        if target is not None and fit.assigns_states and fit.schema[target].cardinality > 1:
            for_target = TargetFits(splits[0], options.pseudo_counts)
        given = options.pseudo_counts
        choice = compare_on_samples(
            splits,
            first=FIRST,
            lower=[1],
            pseudo_counts=given if len(given) == 1 else RANKS_BY_SAMPLES,
            members=options.members,
            seed=fit.seed,
            for_target=for_target,
            **run,
        )
        return Selection(choice.rank, kind, kinds, choice)
    if load_counts is None:
        # one state per level of a target
        target = fit.target if options.searches else None
        rank = 1 if target is None else fit.schema[target].cardinality
        return Selection(rank, kind, kinds)
    choice = select_rank(load_counts(), rng=fit.seed, **run)
    return Selection(choice.rank, kind, kinds, choice, by_samples=False)


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
