"""The number of latent states that was chosen, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pmflib.displays.summary import Summarised, Summary
from pmflib.selection.comparison import Comparison, ScoredCandidate

if TYPE_CHECKING:
    from pmflib.plots.drawing import Axes


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
        from pmflib.displays.model_summary import summarise_rank_choice

        return summarise_rank_choice(self)

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
        """Draw the ranks that were compared: see `pmflib.plots.fit_plots.plot_ranks`."""
        from pmflib.plots.fit_plots import plot_ranks

        return plot_ranks(self, **options)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """All that was compared."""
        return (self.ranks,) if self.pseudo_counts is None else (self.ranks, self.pseudo_counts)
