"""Folds of counts dealt to rounds: in each of them some are held out, and the others fitted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pmflib.arrays import IntArray
from pmflib.counting.pair_counts import PairCounts
from pmflib.level_blocks import list_owners


@dataclass(frozen=True, eq=False)
class Round:
    """Counts to fit, and pairs of other samples to judge the fit on.

    Parameters
    ----------
    training
        Counts of the folds that are fitted.
    held_out
        int64 of shape (n_parts, n_levels, n_levels), upper triangles without their diagonal blocks: each held-out fold
        that has a pair.
    """

    training: PairCounts
    held_out: IntArray


def deal_rounds(counts: PairCounts, n_rounds: int) -> Iterator[Round]:
    """Deal the folds to rounds; each fold is held out in one of them.

    Parameters
    ----------
    counts
        Co-occurrence counts by fold.
    n_rounds
        At most so many rounds, at least 2.

    Yields
    ------
    The rounds in which both sides have a pair; none where that takes more folds.
    """
    offsets = counts.schema.offsets
    owners = list_owners(offsets)
    pairs = np.where(owners[:, None] < owners, counts.tables, 0)
    total = pairs.sum(axis=0)
    held = [fold for fold in range(counts.n_folds) if pairs[fold].any()]
    for first in range(min(n_rounds, len(held))):
        mine = held[first::n_rounds]
        held_out = pairs[mine]
        if (total - held_out.sum(axis=0)).any():
            yield Round(counts.drop_folds(mine), held_out)
