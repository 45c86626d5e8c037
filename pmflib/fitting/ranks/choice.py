"""The number of latent states that was chosen, and why; progress of a choice that is under way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pmflib.core.comparison import Comparison, ScoredCandidate
from pmflib.display.progress import Report
from pmflib.display.summary import Summarised, Summary

if TYPE_CHECKING:
    from pmflib.display.drawing import Axes


@dataclass(frozen=True)
class RankChoice(Summarised):
    """How many latent states, and why.

    Parameters
    ----------
    rank, pseudo_count
        The choice.
    ranks
        All ranks that were compared, in order. By pairs all are under one pseudo-count: the chosen one, unless it is
        so little better than the first that it cannot change their order.
    pseudo_counts
        By pairs, the pseudo-counts that were compared, at the rank that the first had led to; None where there was
        nothing to compare, or ranks were compared under each of them.
    notes
        What a careful user should know.
    """

    rank: int
    pseudo_count: float
    ranks: Comparison
    pseudo_counts: Comparison | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """The choice, how many ranks it is from, and the notes."""
        notes = "".join(f"; {note}" for note in self.notes)
        return (
            f"RankChoice(rank {self.rank}, pseudo-count {self.pseudo_count:g}, of {len(self.curve)} ranks that were "
            f"compared{notes})"
        )

    def summary(self) -> Summary:
        """The choice, why, and all scores: text in a terminal, HTML in a notebook."""
        from pmflib.display.summary import decimal, format_count, tabulate_comparison

        facts = [
            ("latent states", format_count(self.rank)),
            ("pseudo-count", decimal(self.pseudo_count)),
            ("best score at", f"{format_count(self.best)} latent states"),
        ]
        notes = (self.reason, *self.notes)
        tables = tuple(map(tabulate_comparison, self.comparisons))
        return Summary(
            f"Choice of the rank: {format_count(self.rank)}", tuple(facts), notes, tables
        )

    @property
    def best(self) -> int:
        """Rank of the best score; the choice is the least that cannot be distinguished from it."""
        return int(self.ranks.best.settings["rank"])

    @property
    def curve(self) -> tuple[ScoredCandidate, ...]:
        """All ranks that were compared, in order, with their scores."""
        return self.ranks.points

    @property
    def reason(self) -> str:
        """A sentence on the choice of the rank."""
        return self.ranks.reason

    def plot(self, **options: Any) -> Axes:
        """Draw the ranks that were compared: see `pmflib.fitting.figures.plot_ranks`."""
        from pmflib.fitting.figures import plot_ranks

        return plot_ranks(self.ranks, **options)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """All that was compared."""
        return (self.ranks,) if self.pseudo_counts is None else (self.ranks, self.pseudo_counts)


def describe_decision(choice: RankChoice, *, by_samples: bool) -> str:
    """Say whether the rank that was chosen is fine.

    Parameters
    ----------
    choice
        What was chosen.
    by_samples
        Whether held-out samples chose it, and not pairs.
    """
    rank = choice.rank
    if not by_samples:
        return (
            f"rank {rank} is what the pairs of variables show; no samples were held out, and these might want "
            "more: hold some out"
        )
    above = [each for p in choice.curve if (each := int(p.settings["rank"])) > rank]
    if not above:
        return (
            f"rank {rank} is the largest that was tried, and larger ones may be better: the reason below says what "
            "stopped at it"
        )
    if len(set(above)) == 1:
        tried = f"one rank above it, {above[0]}, was no better on held-out samples, and no other was tried"
        return f"rank {rank} is fine as far as was looked: {tried}"
    return f"rank {rank} is fine: ranks up to {max(above)} were no better on held-out samples"


RankCriterion = Literal["pairs", "samples"]
"""What ranks are evaluated by."""

REPORT_SECONDS = 2.0
"""Seconds between two reports at most, however long a fit takes."""


@dataclass(frozen=True)
class RankProgress:
    """How far a choice is.

    Parameters
    ----------
    criterion
        What ranks are evaluated by at the moment.
    doing
        The fits under way, such as "rank 6, pseudo-count 1".
    ranks
        Ranks compared so far, and those under way, in order.
    done, total
        Fits that are done, and those that are known to be needed: the choice may turn out to need more.
    seconds_left
        Estimate for the fits that are known to be needed, by the clock; None while nothing is known.
    """

    criterion: RankCriterion
    doing: str
    ranks: tuple[int, ...]
    done: int
    total: int
    seconds_left: float | None

    def __str__(self) -> str:
        ranks = ", ".join(map(str, self.ranks[-8:]))
        more = "..., " if len(self.ranks) > 8 else ""
        text = f"by {self.criterion}: {self.doing}; ranks {more}{ranks}"
        if self.seconds_left is not None:
            text += f"; about {self.seconds_left:,.0f} s for these fits"
        return text


OnRankProgress = Callable[[RankProgress], None]
"""Called when a fit is done, and at least every ``REPORT_SECONDS`` meanwhile, then from another thread."""


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
        self._criterion: RankCriterion = "pairs"
        self._doing, self._ranks = "", tuple[int, ...]()
        self._done = self._total = 0
        self._costs: list[float] = []
        self._cost_done = 0.0
        self._started = time.monotonic()

    def plan(
        self, criterion: RankCriterion, doing: str, ranks: Sequence[int], costs: Sequence[float]
    ) -> None:
        """Announce fits, with their seconds by the model of costs, and report."""
        if criterion != self._criterion:
            # another kind of fit: how long the former ones took says nothing
            self._cost_done, self._started = 0.0, time.monotonic()
        self._criterion, self._doing, self._ranks = criterion, doing, tuple(ranks)
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
    def heartbeat(self) -> Callable[[], None] | None:
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
            RankProgress(self._criterion, self._doing, self._ranks, self._done, self._total, left)
        )
