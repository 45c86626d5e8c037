"""How many latent states, for a dataset in a store: by pairs of held-out folds, then by held-out samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pmflib.core.arrays import IntArray
from pmflib.core.comparison import Comparison
from pmflib.core.defaults import FIT_SAMPLES, RANKS_BY_SAMPLES
from pmflib.counting.groups import count_some, load_groups, pick_variables
from pmflib.counting.marginals import normalise_singles
from pmflib.counting.pair_counts import PairCounts, load_shape, load_singles
from pmflib.fitting.ranks.by_pairs import MAX_LEVELS, select_rank
from pmflib.fitting.ranks.by_samples import MAX_RANK, compare_on_samples
from pmflib.fitting.ranks.choice import OnRankProgress, RankChoice, describe_decision
from pmflib.fitting.ranks.fit_runs import DEFAULT_BUDGET, limit_levels
from pmflib.fitting.ranks.kinds import KindChoice, choose_kind
from pmflib.fitting.ranks.sample_fits import (
    MOST_HELD_OUT,
    MOST_SAMPLES,
    RankSamples,
    TargetFits,
    split_samples,
)
from pmflib.schema import Schema
from pmflib.store.dataset import take_block
from pmflib.store.sample_blocks import BlockReference, scale_blocks

PAIRS_SHARE = 1 / 3
"""Share of the budget that the search by pairs may take: it only says where to begin, where samples decide."""

LOWER_FOR_TARGET = (2, 4)
"""How many times below the rank by pairs others are compared by EM, where a target decides: pairs do not know it."""


@dataclass(frozen=True)
class StoredRankChoice:
    """The choice among classes and forests, or else by pairs, and by samples, which decides.

    Parameters
    ----------
    by_pairs
        What `select_rank` chose; None where classes and forests have settled it.
    by_samples
        What `select_rank_by_samples` chose, beginning there; None where no samples were held out.
    kinds
        What `choose_kind` chose; None where forests were not to be tried.
    is_forced
        Whether there are forests whatever the samples say.
    """

    by_pairs: RankChoice | None
    by_samples: RankChoice | None
    kinds: KindChoice | None = None
    is_forced: bool = False

    @property
    def has_forests(self) -> bool:
        """Whether the model is to have forests."""
        return self.is_forced or (self.kinds is not None and self.kinds.kind == "forests")

    @property
    def rank(self) -> int:
        """The choice."""
        if self.by_pairs is None:
            assert self.kinds is not None
            return self.kinds.rank
        return (self.by_samples or self.by_pairs).rank

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """All that was compared, in that order."""
        made = (self.kinds, self.by_pairs, self.by_samples)
        return tuple(each for choice in made if choice is not None for each in choice.comparisons)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Sentences that say why."""
        found = () if self.kinds is None else self.kinds.reasons
        if self.by_pairs is not None:
            found = (*found, f"by pairs: {self.by_pairs.reason}", *self.by_pairs.notes)
        if self.by_samples is not None:
            found = (*found, f"by samples: {self.by_samples.reason}")
        return found

    @property
    def decision(self) -> str:
        """A sentence on whether the rank is fine, and what to do if it is not."""
        if self.by_pairs is None:
            within = "depend on each other along forests" if self.has_forests else "are independent"
            return (
                f"{self.rank} latent states, within which variables {within}, have the fewest parameters of all that "
                "held-out samples cannot distinguish from the best"
            )
        return describe_decision(self.by_pairs, self.by_samples)

    def to_json(self) -> dict[str, object]:
        """The choice, how it was made and all that was compared, plain JSON types."""
        by_pairs, by_samples = self.by_pairs, self.by_samples
        return {
            "rank": self.rank,
            "dependence": "tree" if self.has_forests else "none",
            # held-out samples have decided on forests, too
            "judged_by_samples": by_samples is not None or by_pairs is None,
            "rank_by_pairs": None if by_pairs is None else by_pairs.rank,
            "pseudo_count": None if by_samples is None else by_samples.pseudo_count,
            "verdict": self.decision,
            "reasons": list(self.reasons),
            "comparisons": [each.to_json() for each in self.comparisons],
        }


def select_stored_rank(
    counts: str | Path,
    training_folds: Sequence[int],
    training: Sequence[BlockReference],
    held_out: Sequence[BlockReference],
    *,
    method: str = "auto",
    pseudo_count: float | Literal["auto"] = "auto",
    members: int = 1,
    target: str | None = None,
    dependence: str = "none",
    seed: int = 0,
    client: Any = None,
    budget: float = DEFAULT_BUDGET,
    checkpoint: Path | None = None,
    on_progress: OnRankProgress | None = None,
) -> StoredRankChoice:
    """Choose how many latent states, and whether with forests, or by `select_rank` and then `select_rank_by_samples`.

    Where variables may depend on each other within a state, few classes and few states with forests are compared on
    samples, and the choice is made by them; with a target, or members, and no forests, how many classes is as without.

    Parameters
    ----------
    counts
        Where `PairCounts.save` wrote the counts of the whole dataset, by fold.
    training_folds
        Folds to choose on, at least two with pairs.
    training, held_out
        Blocks of the training folds, and of others to evaluate on; without any the choice is by pairs alone.
    method
        Start method that the model will be fitted with: with "auto" a small fit for a target has states of its levels,
        and ranks are compared by such fits.
    pseudo_count
        Mean pseudo-count per level and state of the fits of samples; "auto" compares `RANKS_BY_SAMPLES`, and fits for
        a target compare those of `FIT_TARGET`.
    dependence
        "none", "auto" or "tree", as for `fit_em`.
    seed
        Seed of all starts.
    members, target
        As for `select_rank_by_samples`.
    client, checkpoint, on_progress
        As for `select_rank`.
    budget
        Seconds of processor time for all of the choice, as for `select_rank`; pairs take ``PAIRS_SHARE`` of it.

    Raises
    ------
    PmfError
        If the training folds have too few pairs to fit some and hold out others, or no held-out sample has the target.
    SchemaError
        If there is no such target.
    """
    schema = load_shape(counts)[0]
    position = None if target is None else schema.position(target)
    level_counts = load_singles(counts, folds=training_folds)
    validation = take_block(scale_blocks(held_out), schema, MOST_HELD_OUT)
    block = validation
    if len(validation):
        block = take_block(scale_blocks(training), schema, MOST_SAMPLES)
    shared: dict[str, Any] = {
        "client": client,
        "checkpoint": checkpoint,
        "on_progress": on_progress,
    }
    kinds, is_forced = None, dependence == "tree"
    if dependence != "none" and len(validation):
        splits = split_samples(block, validation, schema, position, pools=True)
        kinds = choose_kind(
            splits, is_forced=is_forced, members=members, seed=seed, budget=budget, **shared
        )
        if kinds is not None and kinds.is_final:
            return StoredRankChoice(None, None, kinds, is_forced)
    for_pairs = PAIRS_SHARE * budget
    most = limit_levels(for_pairs, MAX_LEVELS)
    kept = np.arange(schema.n_variables)
    notes: tuple[str, ...] = ()
    if schema.n_levels > most:
        kept = pick_variables(schema, level_counts, most)
        notes = (
            f"pairs of the {kept.size} variables that are observed most, of {schema.n_variables}",
        )
    folds = _find_counts(counts, training_folds, training, schema, kept if notes else None)
    folds = folds.to_samples()
    by_pairs = select_rank(folds, rng=seed, budget=for_pairs, **shared)
    by_pairs = replace(by_pairs, notes=(*notes, *by_pairs.notes))
    if not len(validation):
        return StoredRankChoice(by_pairs, None, kinds, is_forced)
    total = PairCounts(
        folds.schema, folds.tables.sum(axis=0, keepdims=True), folds.n_rows.sum(keepdims=True)
    )
    first = min(by_pairs.rank, MAX_RANK)
    lower = [first // each for each in LOWER_FOR_TARGET]
    samples = RankSamples(
        schema,
        block,
        validation,
        total,
        kept,
        normalise_singles(level_counts, schema.offsets),
        position,
    )
    by_samples = compare_on_samples(
        [samples],
        first=first,
        lower=[] if position is None else sorted({each for each in lower if 1 < each < first}),
        pseudo_counts=RANKS_BY_SAMPLES if pseudo_count == "auto" else (pseudo_count,),
        members=members,
        seed=seed,
        budget=(1 - PAIRS_SHARE) * budget,
        for_target=_plan_for_target(samples, training, method, pseudo_count, members),
        **shared,
    )
    return StoredRankChoice(by_pairs, by_samples, kinds, is_forced)


def _plan_for_target(
    samples: RankSamples,
    training: Sequence[BlockReference],
    method: str,
    pseudo_count: float | Literal["auto"],
    members: int,
) -> TargetFits | None:
    """Fits for the target, where the model of all training samples will be such a one."""
    if samples.target is None or method != "auto" or members > 1:
        return None
    return TargetFits.plan(
        samples,
        sum(block.n_rows for block in training),
        sum(block.n_observed for block in training),
        FIT_SAMPLES if pseudo_count == "auto" else (pseudo_count,),
    )


def _find_counts(
    path: str | Path,
    folds: Sequence[int],
    training: Sequence[BlockReference],
    schema: Schema,
    kept: IntArray | None,
) -> PairCounts:
    """Training counts by fold; of some variables, from where they take less time to find."""
    n_observed = sum(block.n_observed for block in training)
    if kept is not None and 0 < n_observed < len(folds) * schema.n_levels**2:
        return count_some(training, folds, schema, kept)
    return load_groups(path, [(fold,) for fold in folds], kept)
