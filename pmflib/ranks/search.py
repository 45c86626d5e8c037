"""The search over ranks: which to fit next, which to fit again, and when the choice stands."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.ranks.folds import RankFit, RankFold, RankJob, fit_rank

# Ranks are told apart one by one up to here, then in steps of a tenth.
_FINE = 30
_STEP = 1.1
# Rounds of fitting again what is close, that is within so many standard errors.
_ROUNDS = 4
_CLOSE = 8.0
# Longest step of the search, in places of the ladder: doubles the rank where these are coarse.
_STRIDE = 8


@dataclass(frozen=True)
class RankScore:
    """One point of the curve.

    Parameters
    ----------
    rank, pseudo_count
        Latent states, and the mean pseudo-count per level and state.
    score
        Held-out log-likelihood per pair of answers, nats.
    below_best
        Score of the best rank of the curve minus this one.
    error
        Standard error of that difference over the folds; 0 for the best rank itself.
    unsettled
        What fitting once more has just raised the score by: smaller differences mean nothing.
    """

    rank: int
    pseudo_count: float
    score: float
    below_best: float
    error: float
    unsettled: float


def make_ladder(limit: int) -> list[int]:
    """Ranks that a search may choose from: each one up to 30, then steps of a tenth.

    Parameters
    ----------
    limit
        Largest rank, at least 1.
    """
    ladder = list(range(1, min(limit, _FINE) + 1))
    while ladder[-1] < limit:
        ladder.append(min(limit, math.ceil(_STEP * ladder[-1])))
    return ladder


def compare_paired(better: FloatArray, worse: FloatArray, n_pairs: IntArray) -> tuple[float, float]:
    """Difference of two scores per pair, and its standard error over the folds.

    Parameters
    ----------
    better, worse
        float64 of shape (n_parts,): log-likelihoods of each part's pairs, nats.
    n_pairs
        int64 of shape (n_parts,), positive: pairs of each part; two parts or more.

    Returns
    -------
    The difference of the means over all pairs, and the error of this ratio of two sums.
    """
    total = float(n_pairs.sum())
    mean = float((better - worse).sum()) / total
    spread = (better - worse) - mean * n_pairs
    return mean, math.sqrt(float(spread @ spread) * n_pairs.size / (n_pairs.size - 1)) / total


class RankSearch:
    """Fits of ranks on the same folds, under one pseudo_count.

    Parameters
    ----------
    folds
        Rounds of fitting and judging; two or more.
    ladder
        Ranks to choose from, in order.
    pseudo_count
        Mean pseudo-count per level and state.
    seed
        Of the random starts.
    client
        Dask client that does the fits of a step, or None to do them in this thread.
    """

    def __init__(
        self,
        folds: Sequence[RankFold],
        ladder: Sequence[int],
        pseudo_count: float,
        seed: int,
        client: Any = None,
    ) -> None:
        # loads the configuration's library, which a fit of counts has no use for
        from pmflib.running.maps import send_items

        self.folds = folds
        self.ladder = list(ladder)
        self.pseudo_count = pseudo_count
        self.fits: dict[int, list[RankFit]] = {}
        self._seed = seed
        self._client = client
        self._sent = send_items(client, folds)
        self._n_pairs = np.concatenate([fold.n_pairs for fold in folds])
        self._unsettled: dict[int, float] = {}
        self._begun = 0

    def begin(self, guess: int) -> None:
        """Fit the rank of the ladder next to a guess, and the one above."""
        self._begun = min(bisect.bisect_left(self.ladder, guess), len(self.ladder) - 1)
        self.fit(self.ladder[self._begun : self._begun + 2])

    def fit(self, ranks: Iterable[int]) -> None:
        """Fit ranks one after another, all rounds at a time; those fitted before go on from there."""
        for rank in ranks:
            fitted = sorted(self.fits)
            place = bisect.bisect_left(fitted, rank)
            own = int(rank in self.fits)
            near = fitted[max(0, place - 1) : place + 1 + own]
            starts = [
                tuple(self.fits[each][at].parameters for each in near)
                for at in range(len(self.folds))
            ]
            before = self._sums(rank).sum() if own else math.nan
            self.fits[rank] = self._do(rank, self.pseudo_count, starts)
            gain = (self._sums(rank).sum() - before) / self._n_pairs.sum() if own else 0.0
            self._unsettled[rank] = max(0.0, float(gain))

    def settle(self) -> int:
        """Fit what the choice still hangs on until it stands, and return the rank chosen."""
        self._fill()
        for _ in range(_ROUNDS):
            before = self.choose(), self.best
            # from above: merged states are the better starts
            close = [point.rank for point in reversed(self.make_curve()) if _is_close(point)]
            if len(close) == 1:
                break
            self.fit(close)
            self._fill()
            if (self.choose(), self.best) == before:
                break
        return self.choose()

    @property
    def best(self) -> int:
        """Rank of the best score; the least of them."""
        return max(sorted(self.fits), key=lambda rank: float(self._sums(rank).sum()))

    def choose(self) -> int:
        """The least rank that cannot be told from the best."""
        return min(
            point.rank
            for point in self.make_curve()
            if point.below_best <= point.error + point.unsettled
        )

    def make_curve(self) -> list[RankScore]:
        """Scores of all ranks fitted, in order."""
        return [
            self._make_score(rank, self.pseudo_count, self._sums(rank), self._unsettled[rank])
            for rank in sorted(self.fits)
        ]

    def compare_pseudo_counts(
        self, rank: int, pseudo_counts: Sequence[float]
    ) -> tuple[float, float, list[RankScore]]:
        """Fit a rank under other pseudo_counts, and name the best pseudo_count.

        Returns
        -------
        The pseudo_count with the best score, but the one at hand unless that is better by more than its
        standard error; by how much, nats per pair; and the scores of the others.
        """
        chosen, ahead, points = self.pseudo_count, 0.0, []
        for pseudo_count in pseudo_counts:
            starts = [(fit.parameters,) for fit in self.fits[rank]]
            sums = np.concatenate([fit.scores for fit in self._do(rank, pseudo_count, starts)])
            points.append(self._make_score(rank, pseudo_count, sums, 0.0))
            gain, error = compare_paired(sums, self._sums(rank), self._n_pairs)
            if gain > max(error, ahead):
                chosen, ahead = pseudo_count, gain
        return chosen, ahead, points

    @property
    def margin(self) -> float:
        """By how much the closest other rank does worse than the best, nats per pair."""
        others = [point.below_best for point in self.make_curve() if point.rank != self.best]
        return min(others, default=math.inf)

    def restart(self, pseudo_count: float) -> RankSearch:
        """Search anew under another pseudo_count, from the fits around the choice."""
        search = copy(self)
        search.pseudo_count = pseudo_count
        fitted = sorted(self.fits)
        begin, end = fitted.index(self.choose()), fitted.index(self.best)
        kept = fitted[max(0, begin - 1) : end + 2]
        search.fits = {rank: self.fits[rank] for rank in kept}
        search._unsettled = {}
        search.fit(kept)
        # what the other pseudo_count changed does not tell how settled a fit is
        search._unsettled = dict.fromkeys(kept, 0.0)
        search._begun = self.ladder.index(self.best)
        return search

    def _do(
        self, rank: int, pseudo_count: float, starts: Sequence[tuple[Parameters, ...]]
    ) -> list[RankFit]:
        """Fit a rank in all rounds."""
        from pmflib.running.maps import map_items

        work = [
            (fold, RankJob(rank, pseudo_count, near, self._seed))
            for fold, near in zip(self._sent, starts, strict=True)
        ]
        return map_items(self._client, fit_rank, work)

    def _make_score(
        self, rank: int, pseudo_count: float, sums: FloatArray, unsettled: float
    ) -> RankScore:
        below, error = compare_paired(self._sums(self.best), sums, self._n_pairs)
        score = float(sums.sum() / self._n_pairs.sum())
        return RankScore(rank, pseudo_count, score, below, error, unsettled)

    def _sums(self, rank: int) -> FloatArray:
        return np.concatenate([fit.scores for fit in self.fits[rank]])

    def _fill(self) -> None:
        """Fit ranks until those next to the best, and the one below the choice, are among them."""
        while (wanted := self._find_gap()) is not None:
            self.fit([wanted])

    def _find_gap(self) -> int | None:
        """Rank whose fit the choice asks for, if any."""
        places = [self.ladder.index(rank) for rank in sorted(self.fits)]
        best, chosen = self.ladder.index(self.best), self.ladder.index(self.choose())
        if best == places[-1] and best + 1 < len(self.ladder) and self._still_rises():
            return self.ladder[
                min(best + min(max(1, best - self._begun), _STRIDE), len(self.ladder) - 1)
            ]
        for low in (best, chosen - 1):
            above = [place for place in places if place > low]
            below = [place for place in places if place <= low]
            if low >= 0 and not below:
                return self.ladder[
                    max(0, places[0] - min(max(1, self._begun - places[0]), _STRIDE))
                ]
            if above and below and above[0] - below[-1] > 1:
                return self.ladder[(above[0] + below[-1]) // 2]
        return None

    def _still_rises(self) -> bool:
        """Whether the largest rank fitted does better than the next by more than the error."""
        fitted = sorted(self.fits)
        if len(fitted) < 2:
            return True
        last, before = self._sums(fitted[-1]), self._sums(fitted[-2])
        gain, error = compare_paired(last, before, self._n_pairs)
        return gain > error


def _is_close(point: RankScore) -> bool:
    """Whether better fits might change the order of a rank and the best."""
    return point.below_best <= _CLOSE * point.error + point.unsettled
