"""How many latent states, for a dataset in a store: by pairs of held-out folds, then by held-out samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pmflib.arrays import IntArray
from pmflib.counting.groups import load_groups
from pmflib.counting.pair_counts import PairCounts, load_shape, load_singles
from pmflib.ranks.by_pairs import MAX_LEVELS, pick_variables, select_rank
from pmflib.ranks.by_samples import MAX_RANK, select_rank_by_samples
from pmflib.ranks.choice import RankChoice
from pmflib.schema import Schema
from pmflib.selection.comparison import Comparison
from pmflib.selection.pseudo_count_grids import RANKS_BY_SAMPLES
from pmflib.store.sample_blocks import BlockReference, read_block

TRAINING_SAMPLES = 20_000
"""Training samples that ranks are compared on; as many as a quarter of them are held out."""

N_BLOCKS = 16
"""Blocks that samples are taken from, spread over the dataset: sources are often sorted."""


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


def select_stored_rank(
    counts: str | Path,
    training_folds: Sequence[int],
    training: Sequence[BlockReference],
    held_out: Sequence[BlockReference],
    *,
    pseudo_count: float | Literal["auto"] = "auto",
    seed: int = 0,
    client: Any = None,
    on_pairs: Callable[[RankChoice], None] = lambda choice: None,
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
    pseudo_count
        Mean pseudo-count per level and state of the fits of samples; "auto" compares `RANKS_BY_SAMPLES`.
    seed
        Seed of all starts.
    client
        Dask client for the fits of pairs; None does them in this thread, to the same bits.
    on_pairs
        Called with the choice by pairs, before samples are fitted.

    Raises
    ------
    PmfError
        If the training folds have too few pairs to fit some and hold out others.
    """
    folds, notes = _load_folds(counts, training_folds)
    by_pairs = select_rank(folds, rng=seed, client=client)
    by_pairs = replace(by_pairs, notes=(*notes, *by_pairs.notes))
    on_pairs(by_pairs)
    total = PairCounts.load_total(counts, folds=training_folds)
    judged = take_samples(held_out, total.schema, TRAINING_SAMPLES // 4)
    if not len(judged):
        return StoredRankChoice(by_pairs, None)
    by_samples = select_rank_by_samples(
        take_samples(training, total.schema, TRAINING_SAMPLES),
        judged,
        total,
        first=min(by_pairs.rank, MAX_RANK),
        pseudo_counts=RANKS_BY_SAMPLES if pseudo_count == "auto" else (pseudo_count,),
        rng=seed,
    )
    return StoredRankChoice(by_pairs, by_samples)


def take_samples(blocks: Sequence[BlockReference], schema: Schema, n_samples: int) -> IntArray:
    """Read some samples of a dataset, from `N_BLOCKS` blocks spread over it.

    Parameters
    ----------
    blocks
        All blocks, in order.
    schema
        Variables of the dataset.
    n_samples
        Limit of the samples.

    Returns
    -------
    Codes of shape (at most n_samples, n_variables), -1 missing.
    """
    filled = [block for block in blocks if block.n_rows]
    places = np.linspace(0, len(filled) - 1, min(N_BLOCKS, len(filled)))
    chosen = [filled[place] for place in np.unique(places.astype(np.int64))]
    # a few blocks may be small: the others give more
    is_all = sum(block.n_rows for block in chosen) <= n_samples
    share = n_samples if is_all else n_samples // len(chosen)
    taken = [np.empty((0, schema.n_variables), schema.code_dtype)]
    taken += [read_block(block).to_codes(schema.offsets)[:share] for block in chosen]
    return np.concatenate(taken)


def _load_folds(path: str | Path, folds: Sequence[int]) -> tuple[PairCounts, tuple[str, ...]]:
    """Training counts by fold, of the variables that are observed most where all would be too many."""
    schema, _ = load_shape(path)
    groups = [(fold,) for fold in folds]
    if schema.n_levels <= MAX_LEVELS:
        return load_groups(path, groups), ()
    kept = pick_variables(schema, load_singles(path, folds=folds))
    note = f"pairs of the {kept.size} variables that are observed most, of {schema.n_variables}"
    return load_groups(path, groups, kept), (note,)
