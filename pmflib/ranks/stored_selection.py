"""How many latent states, for a dataset in a store: by pairs of held-out folds, then by held-out samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pmflib.arrays import IntArray
from pmflib.counting.groups import count_some, load_groups, pick_variables
from pmflib.counting.marginals import normalise_singles
from pmflib.counting.pair_counts import PairCounts, load_shape, load_singles
from pmflib.ranks.budget import DEFAULT_BUDGET, limit_levels
from pmflib.ranks.by_pairs import MAX_LEVELS, select_rank
from pmflib.ranks.by_samples import MAX_RANK, compare_on_samples
from pmflib.ranks.choice import RankChoice
from pmflib.ranks.rank_progress import OnRankProgress
from pmflib.ranks.rank_verdict import give_verdict
from pmflib.ranks.sample_fits import RankSamples
from pmflib.ranks.target_fits import TargetFits
from pmflib.schema import Schema
from pmflib.selection.comparison import Comparison
from pmflib.selection.pseudo_count_grids import FIT_SAMPLES, RANKS_BY_SAMPLES
from pmflib.store.sample_blocks import BlockReference
from pmflib.store.taken_samples import take_samples

TRAINING_SAMPLES = 20_000
"""Training samples that ranks are compared on; as many as a quarter of them are held out."""

PAIRS_SHARE = 1 / 3
"""Share of the budget that the search by pairs may take: it only says where to begin, where samples decide."""

LOWER_FOR_TARGET = (2, 4)
"""How many times below the rank by pairs others are compared by EM, where a target decides: pairs do not know it."""


@dataclass(frozen=True)
class StoredRankChoice:
    """The choice by pairs, and that by samples, which decides.

    Parameters
    ----------
    by_pairs
        What `select_rank` chose.
    by_samples
        What `select_rank_by_samples` chose, beginning there; None where no samples were held out.
    """

    by_pairs: RankChoice
    by_samples: RankChoice | None

    @property
    def rank(self) -> int:
        """The choice."""
        return (self.by_samples or self.by_pairs).rank

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """All that was compared, ranks first."""
        last = () if self.by_samples is None else self.by_samples.comparisons
        return (*self.by_pairs.comparisons, *last)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Sentences that say why."""
        first = (f"by pairs: {self.by_pairs.reason}", *self.by_pairs.notes)
        if self.by_samples is None:
            return first
        return (*first, f"by samples: {self.by_samples.reason}")

    @property
    def verdict(self) -> str:
        """A sentence on whether the rank is fine, and what to do if it is not."""
        return give_verdict(self.by_pairs, self.by_samples)


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
    seed: int = 0,
    client: Any = None,
    budget: float = DEFAULT_BUDGET,
    checkpoint: Path | None = None,
    on_progress: OnRankProgress | None = None,
) -> StoredRankChoice:
    """Choose the number of latent states by `select_rank`, and from there on by `select_rank_by_samples`.

    Parameters
    ----------
    counts
        Where `PairCounts.save` wrote the counts of the whole dataset, by fold.
    training_folds
        Folds to choose on, at least two with pairs.
    training, held_out
        Blocks of the training folds, and of others to judge on; without any the choice is by pairs alone.
    method
        Start method that the model will be fitted with: with "auto" a small fit for a target has states of its levels,
        and ranks are compared by such fits.
    pseudo_count
        Mean pseudo-count per level and state of the fits of samples; "auto" compares `RANKS_BY_SAMPLES`, and fits for
        a target compare those of `FIT_TARGET`.
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
    place = None if target is None else schema.position(target)
    level_counts = load_singles(counts, folds=training_folds)
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
    shared: dict[str, Any] = {
        "client": client,
        "checkpoint": checkpoint,
        "on_progress": on_progress,
    }
    by_pairs = select_rank(folds, rng=seed, budget=for_pairs, **shared)
    by_pairs = replace(by_pairs, notes=(*notes, *by_pairs.notes))
    judged = take_samples(held_out, schema, TRAINING_SAMPLES // 4)
    if not len(judged):
        return StoredRankChoice(by_pairs, None)
    total = PairCounts(
        folds.schema, folds.tables.sum(axis=0, keepdims=True), folds.n_rows.sum(keepdims=True)
    )
    first = min(by_pairs.rank, MAX_RANK)
    lower = [first // each for each in LOWER_FOR_TARGET]
    samples = RankSamples(
        schema,
        take_samples(training, schema, TRAINING_SAMPLES),
        judged,
        total,
        kept,
        normalise_singles(level_counts, schema.offsets),
        place,
    )
    by_samples = compare_on_samples(
        samples,
        first=first,
        lower=[] if place is None else sorted({each for each in lower if 1 < each < first}),
        pseudo_counts=RANKS_BY_SAMPLES if pseudo_count == "auto" else (pseudo_count,),
        members=members,
        seed=seed,
        budget=(1 - PAIRS_SHARE) * budget,
        for_target=_plan_for_target(samples, training, method, pseudo_count, members),
        **shared,
    )
    return StoredRankChoice(by_pairs, by_samples)


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
