"""How many latent states? Chosen by folds of counts: no pass over the samples is needed.

Counts of folds subtract: a rank is fitted to the total minus some folds, and scored by the
log-likelihood of their pairs. Ranks are compared by the differences of their scores fold by fold,
whose spread is far below that of the scores, and of ranks that cannot be distinguished the least wins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pmflib.arrays import IntArray
from pmflib.counting.groups import narrow_counts
from pmflib.counting.pair_counts import PairCounts
from pmflib.errors import PmfError, RankError
from pmflib.fitting.rounds import deal_rounds
from pmflib.ranks.choice import RankChoice
from pmflib.ranks.folds import RankFold
from pmflib.ranks.pair_search import RankSearch, make_ladder
from pmflib.schema import Schema
from pmflib.selection.pseudo_count_grids import RANKS_BY_PAIRS

N_ROUNDS = 4
"""Fits of each rank, each with a quarter of the folds held out."""

MAX_LEVELS = 600
"""Larger tables are judged on the variables that are observed most."""


def select_rank(
    counts: PairCounts,
    *,
    ranks: Sequence[int] | None = None,
    pseudo_counts: Sequence[float] = RANKS_BY_PAIRS,
    max_rank: int | None = None,
    rng: np.random.Generator | int = 0,
    client: Any = None,
) -> RankChoice:
    """Choose the number of latent states, and the pseudo-counts, by the pairs of held-out folds.

    Parameters
    ----------
    counts
        Co-occurrence counts of at least two variables, in at least two folds.
    ranks
        The ranks to compare, each at least 1. None searches: from the number of directions in the
        pairs that held-out pairs confirm, up and down while the score rises.
    pseudo_counts
        Mean pseudo-counts per level and state to compare, each at least 0. The first is what ranks
        are compared under; where another does better at the rank found, they are compared again.
    max_rank
        Limit of the search; None is what pairs can distinguish, `Schema.max_pairs_rank`.
    rng
        Generator, or a seed for one; the same seed gives the same choice.
    client
        Dask client for the fits of a step, which do not depend on each other; None does them one after
        another in this thread, to the same bits.

    Returns
    -------
    The choice, all ranks with their scores and errors, and the reason.

    Raises
    ------
    RankError
        If a rank is below 1.
    PmfError
        If fewer than two folds hold a pair, a pseudo-count is negative, or there is nothing to compare.

    Notes
    -----
    Each rank costs four fits of the composite likelihood, a few thousand products of (n_levels,
    n_levels) by (n_levels, rank) in all, whatever the number of samples. Fits start from symmetric
    NMF, from the next rank less with a state added where the pairs fit worst, and from the next
    rank more with two states made one; ranks between which the choice lies are fitted again until
    the choice no longer changes. The rank that is best for samples may be larger: pairs do not show what three
    variables have in common.

    References
    ----------
    Breiman, Friedman, Olshen and Stone (1984), section 3.4.3, for the rule of one standard error.

    Examples
    --------
    >>> from pmflib import count_pairs
    >>> rng = np.random.default_rng(0)
    >>> side = rng.integers(2, size=(4000, 1))
    >>> codes = np.where(rng.random((4000, 5)) < 0.9, side, 1 - side)
    >>> select_rank(count_pairs(codes, [2] * 5)).rank
    2
    """
    _check(ranks, pseudo_counts, max_rank)
    notes: tuple[str, ...] = ()
    if counts.schema.n_levels > MAX_LEVELS:
        level_counts = counts.tables.diagonal(axis1=1, axis2=2).sum(axis=0)
        kept = pick_variables(counts.schema, level_counts)
        notes = (
            f"judged on the {kept.size} of {counts.schema.n_variables} variables that are observed most",
        )
        counts = narrow_counts(counts, kept)
    folds = [RankFold.of_round(dealt) for dealt in deal_rounds(counts, N_ROUNDS)]
    if len(folds) < 2:
        raise PmfError(
            f"counts has {counts.n_folds} folds and pairs to fit and to hold out in "
            f"{len(folds)} rounds of them; a choice takes 2: count with n_folds=16, or give a rank"
        )
    seed = int(np.random.default_rng(rng).integers(2**31))
    schema = counts.schema
    limit = max_rank or schema.max_pairs_rank
    ladder = make_ladder(limit) if ranks is None else sorted(set(ranks))
    search = RankSearch(folds, ladder, float(pseudo_counts[0]), seed, client)
    if ranks is None:
        search.start(sorted(fold.guess for fold in folds)[len(folds) // 2])
    else:
        search.fit(ladder)
    rank = search.settle()
    compared, gain = search.compare_pseudo_counts(rank, [float(each) for each in pseudo_counts[1:]])
    pseudo_count = float(compared.chosen.settings["pseudo_count"])
    if gain >= search.margin:
        # so large a gain may change the order of the ranks
        search = search.restart(pseudo_count)
        rank = search.settle()
    return RankChoice(
        rank,
        pseudo_count,
        search.compare(),
        compared if len(compared.points) > 1 else None,
        notes,
    )


def _check(
    ranks: Sequence[int] | None, pseudo_counts: Sequence[float], max_rank: int | None
) -> None:
    """Refuse a grid that cannot be compared."""
    if ranks is not None and (not ranks or min(ranks) < 1):
        raise RankError(f"ranks is {list(ranks)}; give at least one rank, each at least 1")
    if max_rank is not None and max_rank < 1:
        raise RankError(f"max_rank is {max_rank}; give at least 1")
    if not pseudo_counts or not all(0 <= each < math.inf for each in pseudo_counts):
        raise PmfError(f"pseudo_counts is {list(pseudo_counts)}; give pseudo-counts of at least 0")


def pick_variables(schema: Schema, level_counts: IntArray) -> IntArray:
    """Pick the variables that are observed most, as many as `MAX_LEVELS` has room for, at least two.

    Parameters
    ----------
    schema
        All variables.
    level_counts
        int64 of shape (n_levels,): samples that hold each level.

    Returns
    -------
    int64, their places, in order.
    """
    sizes = np.diff(schema.offsets)
    order = np.argsort(-np.add.reduceat(level_counts, schema.offsets[:-1]), kind="stable")
    n_kept = int((np.cumsum(sizes[order]) <= MAX_LEVELS).sum())
    return np.sort(order[: max(2, n_kept)])
