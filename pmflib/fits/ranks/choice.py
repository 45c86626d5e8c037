"""The chosen number of latent states with its reason, and progress of the choice."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pmflib.base.comparison import Comparison, ScoredCandidate
from pmflib.base.display.progress import Report, find_report
from pmflib.base.display.summary import Summarised, Summary

if TYPE_CHECKING:
    from pmflib.base.display.drawing import Axes


@dataclass(frozen=True)
class RankChoice(Summarised):
    """The chosen number of latent states, with all candidates and the reason.

    Parameters
    ----------
    rank, pseudo_count
        The choice.
    ranks
        All compared ranks, in order. By pairs, all have the same pseudo-count: the chosen one, unless it is so little
        better than the first that it cannot change the order of ranks.
    pseudo_counts
        By pairs, the compared pseudo-counts at the rank selected with the first; None if there was nothing to compare,
        or ranks were compared with each of them.
    notes
        One sentence for each point to be aware of.
    """

    rank: int
    pseudo_count: float
    ranks: Comparison
    pseudo_counts: Comparison | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return the choice, the number of ranks compared, and the notes."""
        notes = "".join(f"; {note}" for note in self.notes)
        return (
            f"RankChoice(rank {self.rank}, pseudo-count {self.pseudo_count:g}, of {len(self.curve)} ranks that were "
            f"compared{notes})"
        )

    def summary(self) -> Summary:
        """Return a summary of the choice, its reason and all scores: text in a terminal, HTML in a notebook."""
        from pmflib.base.display.summary import decimal, format_count, tabulate_comparison

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
        """Return the rank with the best score; the choice is the smallest within one standard error of it."""
        return int(self.ranks.best.settings["rank"])

    @property
    def curve(self) -> tuple[ScoredCandidate, ...]:
        """Return all compared ranks, in order, with their scores."""
        return self.ranks.points

    @property
    def reason(self) -> str:
        """Return a sentence that explains the choice."""
        return self.ranks.reason

    def plot(self, **options: Any) -> Axes:
        """Plot the compared ranks; see `pmflib.fits.figures.plot_ranks`."""
        from pmflib.fits.figures import plot_ranks

        return plot_ranks(self.ranks, **options)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Return all comparisons."""
        return (self.ranks,) if self.pseudo_counts is None else (self.ranks, self.pseudo_counts)


def describe_decision(choice: RankChoice, *, by_samples: bool) -> str:
    """Describe whether the chosen rank is adequate.

    Parameters
    ----------
    choice
        The choice.
    by_samples
        Whether it was made on held-out samples rather than pairs.
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
"""Criterion by which ranks are evaluated."""

REPORT_SECONDS = 2.0
"""Minimum interval between two reports, seconds."""


@dataclass(frozen=True)
class RankProgress:
    """Progress of a choice.

    Parameters
    ----------
    criterion
        Current criterion.
    doing
        Current fits, such as "rank 6, pseudo-count 1".
    ranks
        Ranks compared so far, including the current ones, in order.
    done, total
        Number of finished fits, and of those known to be needed; more may be needed later.
    seconds_left
        Estimated time of the fits known to be needed, seconds; None until an estimate is possible.
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
"""Called after each fit, and from another thread at least every ``REPORT_SECONDS``."""


def report_ranks(report: Report, progress: RankProgress) -> None:
    """Report the progress of a choice; the total is omitted while more fits may be needed."""
    report(progress.done, progress.total + 1, str(progress))


def find_listener(given: OnRankProgress | None) -> OnRankProgress | None:
    """Return the given listener, or one that reports to `pmflib.progress`; None if nobody listens."""
    report = find_report()
    return partial(report_ranks, report) if given is None and report is not None else given


class ProgressReporter:
    """Counts fits and reports to a listener.

    Parameters
    ----------
    listener
        Called with each `RankProgress`; None for no listener.
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
        """Announce fits with their costs in seconds, and report."""
        if criterion != self._criterion:
            # a different kind of fit: earlier times are not informative
            self._cost_done, self._started = 0.0, time.monotonic()
        self._criterion, self._doing, self._ranks = criterion, doing, tuple(ranks)
        self._total += len(costs)
        self._costs = list(costs)
        self.report()

    def count(self, n_done: int) -> None:
        """Count finished fits among those announced last, and report."""
        total = self._total - len(self._costs)
        self._cost_done += sum(self._costs[self._done - total : n_done])
        self._done = total + n_done
        self.report()

    @property
    def heartbeat(self) -> Callable[[], None] | None:
        """Return a function to call regularly during fits, if there is a listener."""
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
