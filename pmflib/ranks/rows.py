"""Ranks judged on held-out samples: pairs do not see what three variables and more have in common.

The rank that is best for density may be many times the one that pairs ask for. From that one on, ranks
are doubled, fitted by EM that stops where the held-out samples do, and compared sample by sample.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.counting.pair_counts import PairCounts
from pmflib.errors import ConvergenceWarning, PmfError, RankError
from pmflib.fitting.from_pairs import FitResult, fit
from pmflib.fitting.from_samples import fit_em

PSEUDO_COUNTS = (1.0, 0.1)
"""Mean pseudo-counts per level and state that every rank is fitted with."""

MAX_RANK = 512
"""The doubling ends here."""

# Entries of the factors above which a rank is not tried.
_MAX_ENTRIES = 4_000_000
_PASSES = 200


@dataclass(frozen=True)
class RowScore:
    """One point of the curve.

    Parameters
    ----------
    rank, pseudo_count
        Latent states, and the mean pseudo-count per level and state.
    score
        Held-out log-likelihood per sample, nats.
    below_best
        Score of the best point minus this one.
    error
        Standard error of that difference, over the samples; 0 for the best point itself.
    passes
        Pass after which the model stood.
    """

    rank: int
    pseudo_count: float
    score: float
    below_best: float
    error: float
    passes: int


@dataclass(frozen=True)
class RowChoice:
    """How many latent states for the density of samples, and why.

    Parameters
    ----------
    rank, pseudo_count
        The choice.
    curve
        All that was fitted, in order.
    reason
        A sentence.
    """

    rank: int
    pseudo_count: float
    curve: tuple[RowScore, ...]
    reason: str


def select_rank_by_rows(
    codes: object,
    held_out: object,
    counts: PairCounts,
    *,
    first: int,
    pseudo_counts: Sequence[float] = PSEUDO_COUNTS,
    max_rank: int = MAX_RANK,
    rng: np.random.Generator | int = 0,
) -> RowChoice:
    """Double the rank while held-out samples become more likely by more than the standard error.

    Parameters
    ----------
    codes, held_out
        Samples to fit and others to judge on: codes of shape (n_rows, n_variables), -1 missing, or what
        the schema can encode.
    counts
        Co-occurrence counts of samples without the held-out ones, which every rank starts from.
    first
        Rank to begin with, at least 1: what `select_rank` found.
    pseudo_counts
        Mean pseudo-counts per level and state, each at least 0; every rank is fitted with each.
    max_rank
        Limit of the rank.
    rng
        Generator, or a seed for one.

    Returns
    -------
    The choice, the curve and the reason.

    Raises
    ------
    RankError
        If first is below 1 or above max_rank.
    PmfError
        If there is nothing to fit or judge on, or no pseudo_count.
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
                    max_passes=_PASSES,
                    rng=seed,
                )
            found.append((result, pseudo_count, result.model.log_prob(fresh)))
            if best < 0 or found[-1][2].mean() > found[best][2].mean():
                best = len(found) - 1
        if before >= 0:
            gain, error = _compare(found[best][2], found[before][2])
            if gain <= error:
                best = before
                break
        rank = min(2 * rank, max_rank)
        if rank == found[-1][0].model.rank or schema.n_levels * rank > _MAX_ENTRIES:
            break
    top = max((likelihoods for _, _, likelihoods in found), key=lambda each: float(each.mean()))
    curve = tuple(_make_score(*each, top) for each in found)
    point = curve[best]
    return RowChoice(point.rank, point.pseudo_count, curve, _explain(curve, point))


def _compare(better: FloatArray, worse: FloatArray) -> tuple[float, float]:
    """Mean difference and its standard error."""
    gains = better - worse
    return float(gains.mean()), float(gains.std()) / math.sqrt(max(gains.size - 1, 1))


def _make_score(
    result: FitResult, pseudo_count: float, likelihoods: FloatArray, best: FloatArray
) -> RowScore:
    below, error = _compare(best, likelihoods)
    score = float(likelihoods.mean())
    return RowScore(result.model.rank, pseudo_count, score, below, error, result.best_pass)


def _explain(curve: Sequence[RowScore], point: RowScore) -> str:
    top = min(curve, key=lambda each: each.below_best)
    text = f"rank {top.rank} makes held-out samples most likely, {top.score:.4f} nats each"
    if top is not point:
        return (
            f"{text}; rank {point.rank} is the least that cannot be told from it: "
            f"{point.below_best:.2g} below, standard error {point.error:.2g}"
        )
    larger = [each for each in curve if each.rank > point.rank]
    if not larger:
        return f"{text}; no larger rank was tried"
    closest = min(larger, key=lambda each: each.below_best)
    return (
        f"{text}; rank {closest.rank} is {closest.below_best:.2g} below, "
        f"standard error {closest.error:.2g}"
    )
