"""Progress of a choice of the rank: what is compared, how many fits are done, how long those to come may take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pmflib.reporting.work_progress import Report

Judged = Literal["pairs", "samples"]
"""What ranks are judged by."""

BEAT_SECONDS = 2.0
"""Seconds between two reports at most, however long a fit takes."""


@dataclass(frozen=True)
class RankProgress:
    """How far a choice is.

    Parameters
    ----------
    judged
        What ranks are judged by at the moment.
    doing
        The fits under way, such as "rank 6, pseudo-count 1".
    ranks
        Ranks compared so far, and those under way, in order.
    done, total
        Fits that are done, and those that are known to be needed: the choice may turn out to need more.
    seconds_left
        Estimate for the fits that are known to be needed, by the clock; None while nothing is known.
    """

    judged: Judged
    doing: str
    ranks: tuple[int, ...]
    done: int
    total: int
    seconds_left: float | None

    def __str__(self) -> str:
        ranks = ", ".join(map(str, self.ranks[-8:]))
        more = "..., " if len(self.ranks) > 8 else ""
        text = f"by {self.judged}: {self.doing}; ranks {more}{ranks}"
        if self.seconds_left is not None:
            text += f"; about {self.seconds_left:,.0f} s for these fits"
        return text


OnRankProgress = Callable[[RankProgress], None]
"""Called when a fit is done, and at least every ``BEAT_SECONDS`` meanwhile, then from another thread."""


def report_ranks(report: Report, progress: RankProgress) -> None:
    """Report a choice of the rank; while fits may follow, their number is not that of all."""
    report(progress.done, progress.total + 1, str(progress))


class ProgressReporter:
    """Keeps count of fits and reports to a listener.

    Parameters
    ----------
    listener
        Called with each `RankProgress`; None is nobody.
    """

    def __init__(self, listener: OnRankProgress | None) -> None:
        self._listener = listener
        self._judged: Judged = "pairs"
        self._doing, self._ranks = "", tuple[int, ...]()
        self._done = self._total = 0
        self._costs: list[float] = []
        self._cost_done = 0.0
        self._started = time.monotonic()

    def plan(
        self, judged: Judged, doing: str, ranks: Sequence[int], costs: Sequence[float]
    ) -> None:
        """Announce fits, with their seconds by the model of costs, and report."""
        if judged != self._judged:
            # another kind of fit: how long the former ones took says nothing
            self._cost_done, self._started = 0.0, time.monotonic()
        self._judged, self._doing, self._ranks = judged, doing, tuple(ranks)
        self._total += len(costs)
        self._costs = list(costs)
        self.report()

    def count(self, n_done: int) -> None:
        """Note that so many of the fits that were announced last are done, and report."""
        total = self._total - len(self._costs)
        self._cost_done += sum(self._costs[self._done - total : n_done])
        self._done = total + n_done
        self.report()

    @property
    def beat(self) -> Callable[[], None] | None:
        """What to call while fits are under way."""
        return None if self._listener is None else self.report

    def report(self) -> None:
        """Report to the listener."""
        if self._listener is None:
            return
        cost_left = sum(self._costs[len(self._costs) - (self._total - self._done) :])
        if self._total == self._done:
            cost_left = 0.0
        spent = time.monotonic() - self._started
        left = cost_left * spent / self._cost_done if self._cost_done > 0 else None
        self._listener(
            RankProgress(self._judged, self._doing, self._ranks, self._done, self._total, left)
        )
