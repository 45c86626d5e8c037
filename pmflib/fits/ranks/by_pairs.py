"""Rank selection by pairs: cross-validation over folds of counts, without a pass over the samples.

Counts of folds can be subtracted: a rank is fitted to the total minus some folds, and scored by the log-likelihood of
the pairs in these folds. Ranks are compared by the differences of their scores by fold, which vary far less than the
scores themselves; among ranks within one standard error of the best, the smallest is chosen.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from pmflib.base.arrays import FloatArray, Parameters, check_counts
from pmflib.base.comparison import Comparison, ScoredCandidate, compare_candidates, compare_folds
from pmflib.base.constraints import at_least, check
from pmflib.base.defaults import RANKS_BY_PAIRS
from pmflib.base.display.progress import reports_progress
from pmflib.base.errors import PmfError, RankError
from pmflib.counts.groups import narrow_counts
from pmflib.counts.pair_counts import PairCounts
from pmflib.counts.selection import pick_variables
from pmflib.fits.composite_likelihood import hold_out_rounds
from pmflib.fits.ranks.choice import RankChoice
from pmflib.fits.ranks.fit_runs import (
    DEFAULT_BUDGET,
    USUAL_UPDATES,
    FitRuns,
    RankFit,
    RunOptions,
    WorkBudget,
    estimate_update,
    limit_levels,
)
from pmflib.fits.ranks.folds import RankFold, RankJob, fit_rank

N_ROUNDS = 4
"""Number of fits per rank, each with a quarter of the folds held out."""

MAX_LEVELS = 600
"""Larger tables are evaluated on the most frequently observed variables."""

VERSION = 2
"""Increased when fits change; saved fits of earlier versions are not used."""


@reports_progress
def select_rank(
    counts: PairCounts,
    *,
    ranks: Sequence[int] | None = None,
    pseudo_counts: Sequence[float] = RANKS_BY_PAIRS,
    max_rank: int | None = None,
    rng: np.random.Generator | int = 0,
    **run: Unpack[RunOptions],
) -> RankChoice:
    """Choose the number of latent states, and the pseudo-counts, by the pairs of held-out folds.

    Parameters
    ----------
    counts
        Co-occurrence counts of at least two variables in at least two folds.
    ranks
        Ranks to compare, each at least 1. None searches from the number of directions confirmed by held-out pairs, up
        and down while the score improves.
    pseudo_counts
        Mean pseudo-counts per level and state to compare, each at least 0. Ranks are compared under the first; if
        another is better at the selected rank, they are compared again.
    max_rank
        Upper limit of the search; None uses the number of states that pairs can distinguish, `Schema.max_pairs_rank`.
    rng
        Random generator, or a seed; equal seeds give equal choices.
    **run
        Fields of `pmflib.fits.ranks.fit_runs.RunOptions`: ``client`` (Dask client; None fits in this thread, to the
        same bits), ``budget`` (600 seconds of processor time, by a model of costs), ``checkpoint`` (folder from which
        the same call continues) and ``on_progress``.

    Returns
    -------
    The choice, all ranks with their scores and errors, and the reason.

    Raises
    ------
    RankError
        If a rank is below 1.
    PmfError
        If fewer than two folds have pairs, a pseudo-count is negative, or there is nothing to compare.

    Notes
    -----
    Each rank costs four fits of the composite likelihood, in total a few thousand products of matrices
    (n_levels, n_levels) and (n_levels, rank), whatever the number of samples. Fits start from symmetric NMF, from the
    next lower rank with a state added where the pairs fit worst, and from the next higher rank with two states merged.
    Ranks close to the decision are refitted until the choice no longer changes. The best rank for samples may be
    larger, because pairs do not show dependence among three variables.

    References
    ----------
    Breiman, Friedman, Olshen and Stone (1984), section 3.4.3, for the one-standard-error rule.

    Examples
    --------
    >>> from pmflib import count_pairs
    >>> rng = np.random.default_rng(0)
    >>> side = rng.integers(2, size=(4000, 1))
    >>> codes = np.where(rng.random((4000, 5)) < 0.9, side, 1 - side)
    >>> select_rank(count_pairs(codes, [2] * 5)).rank
    2
    """
    check_counts(counts, PairCounts)
    counts = counts.to_samples()
    _check(ranks, pseudo_counts, max_rank)
    seed = int(np.random.default_rng(rng).integers(2**31))
    budget = WorkBudget.share(run.get("budget", DEFAULT_BUDGET)).left
    notes: tuple[str, ...] = ()
    most = limit_levels(budget, MAX_LEVELS)
    if counts.schema.n_levels > most:
        kept = pick_variables(counts.schema, counts.count_levels(), most)
        notes = (
            f"judged on the {kept.size} of {counts.schema.n_variables} variables that are observed most",
        )
        counts = narrow_counts(counts, kept)
    folds = [RankFold.of_round(split) for split in hold_out_rounds(counts, N_ROUNDS)]
    wanted = at_least(2, "count with n_folds=16, or pass a rank")
    check(wanted, **{"number of folds with pairs in counts": len(folds)})
    schema = counts.schema
    limit = max_rank or schema.max_pairs_rank
    grid = make_rank_grid(limit) if ranks is None else sorted(set(ranks))
    choice = ""
    if run.get("checkpoint") is not None:
        choice = _digest(counts, [VERSION, grid, ranks is None, list(pseudo_counts), seed, budget])
    runs = FitRuns(choice, **run)
    search = RankSearch(folds, grid, float(pseudo_counts[0]), seed, runs)
    if ranks is None:
        search.start(sorted(fold.guess for fold in folds)[len(folds) // 2])
    else:
        search.fit(grid)
    rank = search.refine()
    compared, gain = search.compare_pseudo_counts(rank, [float(each) for each in pseudo_counts[1:]])
    pseudo_count = float(compared.chosen.settings["pseudo_count"])
    if gain >= search.margin:
        # a gain this large may change the order of the ranks
        search = search.restart(pseudo_count)
        rank = search.refine()
    return RankChoice(
        rank,
        pseudo_count,
        search.compare(),
        compared if len(compared.points) > 1 else None,
        (*notes, *search.notes),
    )


def _digest(counts: PairCounts, options: Sequence[Any]) -> str:
    """Compute the SHA-256 digest of what the fits of a choice depend on."""
    total = hashlib.sha256(json.dumps([counts.schema.digest, *options]).encode())
    total.update(np.ascontiguousarray(counts.tables).tobytes())
    return total.hexdigest()


def _check(
    ranks: Sequence[int] | None, pseudo_counts: Sequence[float], max_rank: int | None
) -> None:
    """Check the candidates."""
    if ranks is not None and not isinstance(ranks, Sequence | range | np.ndarray):
        raise RankError(f"ranks is {ranks!r}; pass a list of ranks to compare, as range(1, 9)")
    if ranks is not None and (not ranks or min(ranks) < 1):
        raise RankError(f"ranks is {list(ranks)}; pass at least one rank, each at least 1")
    check(at_least(1, also=(None,)), RankError, max_rank=max_rank)
    if not pseudo_counts or not all(0 <= each < math.inf for each in pseudo_counts):
        raise PmfError(f"pseudo_counts is {list(pseudo_counts)}; give pseudo-counts of at least 0")


@dataclass(frozen=True)
class SearchSettings:
    """Limits of the search. All are choices of this library, tested on simulated models (``benchmarks/rank.py``).

    Parameters
    ----------
    finest
        Rank up to which every rank is a candidate; above, ranks grow by a factor of ``step``.
    step
        Ratio of neighbouring ranks above ``finest``; scores of closer ranks hardly differ.
    rounds
        Maximum number of times that ranks close to the best are refitted.
    close
        Standard errors below the best within which a rank is refitted, because better fits may change the order.
    longest_step
        Longest step of the search, in steps of the grid; eight steps of ten percent double the rank.
    """

    finest: int = 30
    step: float = 1.1
    rounds: int = 4
    close: float = 8.0
    longest_step: int = 8


SETTINGS = SearchSettings()


def make_rank_grid(limit: int) -> list[int]:
    """Return the candidate ranks of a search: every rank up to 30, then steps of ten percent.

    Parameters
    ----------
    limit
        Largest rank, at least 1.
    """
    grid = list(range(1, min(limit, SETTINGS.finest) + 1))
    while grid[-1] < limit:
        grid.append(min(limit, math.ceil(SETTINGS.step * grid[-1])))
    return grid


class RankSearch:
    """Fits of ranks to the same folds with one pseudo-count.

    Parameters
    ----------
    folds
        Rounds of fitting and evaluation, at least two.
    grid
        Candidate ranks, in order.
    pseudo_count
        Mean pseudo-count per level and state.
    seed
        Seed of the random starts.
    runs
        Runs the fits of a step. Fits beyond the budget are skipped, except those of the first two ranks.
    """

    def __init__(
        self,
        folds: Sequence[RankFold],
        grid: Sequence[int],
        pseudo_count: float,
        seed: int,
        runs: FitRuns,
    ) -> None:
        self.folds = folds
        self.grid = list(grid)
        self.pseudo_count = pseudo_count
        self.fits: dict[int, list[RankFit]] = {}
        self._seed = seed
        self._runs = runs
        self._visits: Counter[tuple[int, float]] = Counter()
        self._left_out: set[int] = set()
        self._is_stopped = False
        self._n_pairs = np.concatenate([fold.n_pairs for fold in folds])
        self._unconverged: dict[int, float] = {}
        self._first = 0

    def start(self, guess: int) -> None:
        """Fit the rank of the grid closest to an initial guess, and the one above."""
        self._first = min(bisect.bisect_left(self.grid, guess), len(self.grid) - 1)
        self.fit(self.grid[self._first : self._first + 2])

    def fit(self, ranks: Iterable[int]) -> None:
        """Fit ranks in turn, all rounds at a time; previously fitted ranks continue from their fits."""
        for rank in ranks:
            fitted = sorted(self.fits)
            index = bisect.bisect_left(fitted, rank)
            own = int(rank in self.fits)
            near = fitted[max(0, index - 1) : index + 1 + own]
            starts = [
                tuple(self.fits[each][at].parameters for each in near)
                for at in range(len(self.folds))
            ]
            before = self._sums(rank).sum() if own else math.nan
            self.fits[rank] = self._do(rank, self.pseudo_count, starts)
            gain = (self._sums(rank).sum() - before) / self._n_pairs.sum() if own else 0.0
            self._unconverged[rank] = max(0.0, float(gain))

    def refine(self) -> int:
        """Fit the ranks that the choice depends on until it no longer changes, and return the choice."""
        self._fill()
        for _ in range(SETTINGS.rounds):
            before = self.choose(), self.best
            # downwards, because merged states are the better starts
            close = [_rank_of(p) for p in reversed(self.compare().points) if _is_close(p)]
            if len(close) == 1:
                break
            if not self._affords(close):
                self._is_stopped = True
                break
            self.fit(close)
            self._fill()
            if (self.choose(), self.best) == before:
                break
        return self.choose()

    @property
    def best(self) -> int:
        """Return the rank with the best score; ties go to the smallest."""
        return _rank_of(self.compare().best)

    def choose(self) -> int:
        """Return the smallest rank within one standard error of the best."""
        return _rank_of(self.compare().chosen)

    def compare(self) -> Comparison:
        """Compare all fitted ranks, in order."""
        ranks = sorted(self.fits)
        sums = [self._sums(rank) for rank in ranks]
        return compare_candidates(
            "pair",
            [{"rank": rank, "pseudo_count": self.pseudo_count} for rank in ranks],
            [self._score(each) for each in sums],
            subtract=lambda best, other: compare_folds(sums[best], sums[other], self._n_pairs),
            unconverged=[self._unconverged[rank] for rank in ranks],
            rule="least",
        )

    def compare_pseudo_counts(
        self, rank: int, pseudo_counts: Sequence[float]
    ) -> tuple[Comparison, float]:
        """Fit a rank with other pseudo-counts, and compare them with the current one.

        Returns
        -------
        The comparison, which chooses the current pseudo-count unless another is better by more than a standard error;
        and the gain of the choice over the current one, nats per pair.
        """
        sums, chosen, ahead = [self._sums(rank)], 0, 0.0
        starts = [(fit.parameters,) for fit in self.fits[rank]]
        for pseudo_count in pseudo_counts:
            sums.append(
                np.concatenate([fit.scores for fit in self._do(rank, pseudo_count, starts)])
            )
            gain = compare_folds(sums[-1], sums[0], self._n_pairs)
            if gain.mean > max(gain.error, ahead):
                chosen, ahead = len(sums) - 1, gain.mean
        comparison = compare_candidates(
            "pair",
            [{"rank": rank, "pseudo_count": each} for each in (self.pseudo_count, *pseudo_counts)],
            [self._score(each) for each in sums],
            subtract=lambda best, other: compare_folds(sums[best], sums[other], self._n_pairs),
            rule="first",
            chosen=chosen,
        )
        return comparison, ahead

    @property
    def margin(self) -> float:
        """Return the difference between the best rank and the closest other one, nats per pair."""
        compared = self.compare()
        others = [each.below_best for each in compared.points if each is not compared.best]
        return min(others, default=math.inf)

    def restart(self, pseudo_count: float) -> RankSearch:
        """Start a new search with another pseudo-count from the fits around the choice."""
        search = copy(self)
        search.pseudo_count = pseudo_count
        fitted = sorted(self.fits)
        first, last = fitted.index(self.choose()), fitted.index(self.best)
        kept = fitted[max(0, first - 1) : last + 2]
        search.fits = {rank: self.fits[rank] for rank in kept}
        search._unconverged = {}
        search.fit(kept)
        # changes due to another pseudo-count do not show how converged a fit is
        search._unconverged = dict.fromkeys(kept, 0.0)
        search._first = self.grid.index(self.best)
        return search

    @property
    def notes(self) -> tuple[str, ...]:
        """Return sentences on what was left out because of the budget."""
        notes: tuple[str, ...] = ()
        if self._left_out:
            ranks = ", ".join(map(str, sorted(self._left_out)))
            notes = (f"by pairs, rank {ranks} was not tried, for want of budget",)
        if self._is_stopped:
            notes += (
                "by pairs, ranks close to the best were not fitted again, for want of budget",
            )
        return notes

    def _affords(self, ranks: Iterable[int]) -> bool:
        """Return whether the budget allows fits of some ranks in all rounds."""
        return self._runs.budget.affords(sum(map(self._estimate, ranks)) * len(self.folds))

    def _estimate(self, rank: int) -> float:
        """Estimate the time of a fit by the cost model, seconds."""
        return USUAL_UPDATES * estimate_update(self._n_levels, rank)

    @property
    def _n_levels(self) -> int:
        return self.folds[0].singles.size

    def _do(
        self, rank: int, pseudo_count: float, starts: Sequence[tuple[Parameters, ...]]
    ) -> list[RankFit]:
        """Fit a rank in all rounds."""
        self._visits[rank, pseudo_count] += 1
        visit = self._visits[rank, pseudo_count]
        fits = self._runs.do(
            fit_rank,
            self.folds,
            [RankJob(rank, pseudo_count, near, self._seed) for near in starts],
            [f"pairs-{pseudo_count:g}-{rank}-{visit}-{at}" for at in range(len(self.folds))],
            [self._estimate(rank)] * len(self.folds),
            criterion="pairs",
            doing=f"rank {rank}, pseudo-count {pseudo_count:g}"
            + (f", fitted again ({visit - 1})" if visit > 1 else ""),
            ranks=sorted({*self.fits, rank}),
        )
        cost = estimate_update(self._n_levels, rank)
        self._runs.budget.spend(sum(each.n_steps for each in fits) * cost)
        return fits

    def _score(self, sums: FloatArray) -> float:
        return float(sums.sum() / self._n_pairs.sum())

    def _sums(self, rank: int) -> FloatArray:
        return np.concatenate([fit.scores for fit in self.fits[rank]])

    def _fill(self) -> None:
        """Fit ranks until the neighbours of the best, and the one below the choice, are included."""
        while (rank := self._find_gap()) is not None:
            if not self._affords([rank]):
                self._left_out.add(rank)
                return
            self.fit([rank])

    def _find_gap(self) -> int | None:
        """Return a rank that must be fitted before the choice can be made, if any."""
        indices = [self.grid.index(rank) for rank in sorted(self.fits)]
        best, chosen = self.grid.index(self.best), self.grid.index(self.choose())
        if best == indices[-1] and best + 1 < len(self.grid) and self._still_rises():
            return self.grid[
                min(
                    best + min(max(1, best - self._first), SETTINGS.longest_step),
                    len(self.grid) - 1,
                )
            ]
        for low in (best, chosen - 1):
            above = [index for index in indices if index > low]
            below = [index for index in indices if index <= low]
            if low >= 0 and not below:
                return self.grid[
                    max(
                        0, indices[0] - min(max(1, self._first - indices[0]), SETTINGS.longest_step)
                    )
                ]
            if above and below and above[0] - below[-1] > 1:
                return self.grid[(above[0] + below[-1]) // 2]
        return None

    def _still_rises(self) -> bool:
        """Return whether the largest fitted rank is better than the next by more than the error."""
        fitted = sorted(self.fits)
        if len(fitted) < 2:
            return True
        last, before = self._sums(fitted[-1]), self._sums(fitted[-2])
        return compare_folds(last, before, self._n_pairs).is_distinct


def _rank_of(point: ScoredCandidate) -> int:
    return int(point.settings["rank"])


def _is_close(point: ScoredCandidate) -> bool:
    """Return whether better fits might change the order of a rank and the best."""
    return point.below_best <= SETTINGS.close * (point.error or 0.0) + point.unconverged
