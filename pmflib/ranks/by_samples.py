"""Ranks judged on held-out samples: pairs do not show what three variables and more have in common.

The rank that is best for density may be many times the one that pairs choose. From that one on, ranks
are doubled, fitted by EM that stops where the held-out samples do, and compared sample by sample.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.counting.pair_counts import PairCounts
from pmflib.errors import ConvergenceWarning, PmfError, RankError
from pmflib.fitting.from_pairs import FitResult, fit
from pmflib.fitting.from_samples import fit_em
from pmflib.ranks.choice import RankChoice
from pmflib.selection.comparison import compare, compare_samples
from pmflib.selection.pseudo_count_grids import RANKS_BY_SAMPLES

MAX_RANK = 512
"""The doubling ends here."""

MAX_ENTRIES = 4_000_000
"""Entries of the factors above which a rank is not tried: 32 MB, and EM keeps a few such tables."""

MAX_PASSES = 200
"""Passes of each fit at most: most stop earlier, where held-out samples do."""


def select_rank_by_samples(
    codes: object,
    held_out: object,
    counts: PairCounts,
    *,
    first: int,
    pseudo_counts: Sequence[float] = RANKS_BY_SAMPLES,
    max_rank: int = MAX_RANK,
    rng: np.random.Generator | int = 0,
) -> RankChoice:
    """Double the rank while held-out samples become more likely by more than the standard error.

    Parameters
    ----------
    codes, held_out
        Samples to fit and others to judge on: codes of shape (n_rows, n_variables), -1 missing, or what
        the schema can encode.
    counts
        Co-occurrence counts of samples without the held-out ones, which every rank starts from.
    first
        Rank to start from, at least 1: what `select_rank` found.
    pseudo_counts
        Mean pseudo-counts per level and state, each at least 0; every rank is fitted with each.
    max_rank
        Limit of the rank.
    rng
        Generator, or a seed for one.

    Returns
    -------
    The choice, all fits with their scores, and the reason.

    Raises
    ------
    RankError
        If first is below 1 or above max_rank.
    PmfError
        If there is nothing to fit or judge on, or no pseudo-count.
    """
    if not 1 <= first <= max_rank:
        raise RankError(f"first is {first}, outside [1, {max_rank}]; give a rank within")
    if not pseudo_counts:
        raise PmfError("pseudo_counts is empty; give at least one pseudo-count")
    schema = counts.schema
    fresh = schema.encode(held_out)
    if not len(fresh):
        raise PmfError("held_out has no rows; hold out at least one sample, or use select_rank")
    seed = int(np.random.default_rng(rng).integers(2**31))
    found: list[tuple[FitResult, float, FloatArray]] = []
    best, rank = -1, first
    while True:
        start = fit(counts, rank, method="pairs", rng=seed).model
        before = best
        for pseudo_count in pseudo_counts:
            with warnings.catch_warnings():
                # few passes are enough to compare
                warnings.simplefilter("ignore", ConvergenceWarning)
                result = fit_em(
                    codes,
                    start,
                    validation=fresh,
                    pseudo_count=pseudo_count,
                    max_passes=MAX_PASSES,
                    rng=seed,
                )
            found.append((result, pseudo_count, result.model.log_prob(fresh)))
            if best < 0 or found[-1][2].mean() > found[best][2].mean():
                best = len(found) - 1
        if before >= 0:
            gain = compare_samples(found[best][2], found[before][2])
            if gain.mean <= gain.error:
                best = before
                break
        rank = min(2 * rank, max_rank)
        if rank == found[-1][0].model.rank or schema.n_levels * rank > MAX_ENTRIES:
            break
    return _conclude(found, best)


def _conclude(found: Sequence[tuple[FitResult, float, FloatArray]], chosen: int) -> RankChoice:
    """Report all fits, and the one that was chosen; each with its pseudo-count and its held-out log-likelihoods."""
    ranks = [result.model.rank for result, _, _ in found]
    compared = compare(
        "sample",
        [
            {"rank": rank, "pseudo_count": pseudo_count}
            for rank, (_, pseudo_count, _) in zip(ranks, found, strict=True)
        ],
        [float(likelihoods.mean()) for *_, likelihoods in found],
        subtract=lambda best, other: compare_samples(found[best][2], found[other][2]),
        rule="least",
        chosen=chosen,
    )
    if ranks[chosen] == max(ranks):
        compared = replace(compared, reason=f"{compared.reason}; no larger rank was tried")
    return RankChoice(ranks[chosen], found[chosen][1], compared)
