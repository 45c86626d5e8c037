"""Search over ranks by pairs: which rank to fit next, which to refit, and when to stop."""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from pmflib.core.arrays import FloatArray, Parameters
from pmflib.core.comparison import Comparison, ScoredCandidate, compare_candidates, compare_folds
from pmflib.fitting.ranks.fit_runs import USUAL_UPDATES, FitRuns, RankFit, estimate_update
from pmflib.fitting.ranks.folds import RankFold, RankJob, fit_rank


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
        self._unsettled: dict[int, float] = {}
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
            self._unsettled[rank] = max(0.0, float(gain))

    def settle(self) -> int:
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
            unsettled=[self._unsettled[rank] for rank in ranks],
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
        search._unsettled = {}
        search.fit(kept)
        # changes due to another pseudo-count do not show how converged a fit is
        search._unsettled = dict.fromkeys(kept, 0.0)
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
    return point.below_best <= SETTINGS.close * (point.error or 0.0) + point.unsettled
