"""Choice between latent classes and other kinds of models, and of their number of states.

Variables derived from a common fact are dependent in every state. Latent classes then need many states, hundreds in
some tables, where a few states with forests give a better fit in less time; without dependence within states, forests
are superfluous parameters. Therefore small numbers of states of either kind are fitted first. Among candidates within
one standard error of the best on held-out samples, the one with the fewest free parameters is chosen. If the pairs
under the best classes show only noise, only forests with fewer parameters are tried, and classes are doubled beyond
small numbers only if forests have not made this unnecessary. People who differ by degree rather than in kind would need
a class for every degree, so one to three traits are tried as well, as long as each further one improves the fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Unpack

from pmflib.base.arrays import FloatArray
from pmflib.base.comparison import Comparison, compare_candidates, compare_samples
from pmflib.base.defaults import LIMITS, RANKS_BY_SAMPLES
from pmflib.em.block_source import BlocksInMemory
from pmflib.fits.em_fit import EMFit, Passes
from pmflib.fits.fit_specifications import Options
from pmflib.fits.kinds import FitKind
from pmflib.fits.ranks.by_samples import MAX_RANK, SampleSearch
from pmflib.fits.ranks.choice import find_listener
from pmflib.fits.ranks.fit_runs import DEFAULT_BUDGET, RunOptions, WorkBudget
from pmflib.fits.ranks.sample_fits import RankSamples

FEW = 16
"""Number of latent classes up to which they are doubled before forests are tried."""
PSEUDO_COUNT = 1.0
"""Pseudo-count of all compared fits of other kinds; the best shrinkage is chosen once the rank is known."""
EXCLUSION_ERRORS = 3.0
"""Number of standard errors below the best classes at which forests with nearly as many states rule out forests with
fewer, and traits rule out further traits.
"""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A number of states of one kind, or of traits.

    Parameters
    ----------
    kind, rank
        Kind and rank; for traits, the rank is their number.
    n_parameters
        Free parameters.
    scores
        float64, log-likelihood of each held-out sample over all splits, nats.
    n_more
        Number of parameters added when candidates are put in order, so that simpler kinds come first.
    """

    kind: str
    rank: int
    n_parameters: int
    scores: FloatArray
    n_more: int = 0

    @property
    def settings(self) -> dict[str, int | float | str]:
        """Return the settings that distinguish the candidate."""
        return {"kind": self.kind, "rank": self.rank, "parameters": self.n_parameters}

    @property
    def order(self) -> tuple[int, str]:
        """Return the sort key: free parameters, and those that are added, then the kind."""
        return self.n_parameters + self.n_more, self.kind


class KindSearch(Protocol):
    """Search over the numbers of states of a kind of model: what `pmflib.fits.kinds.FitKind.search` opens."""

    @property
    def candidates(self) -> list[Candidate]:
        """Numbers of states fitted to all splits, in order."""

    @property
    def left_out(self) -> str:
        """What was not tried, and why; "" if nothing was left out."""

    def run(self, classes: SampleSearch | None, others: Sequence[Candidate], members: int) -> None:
        """Fit small numbers of states.

        Parameters
        ----------
        classes
            The search over latent classes; None if they are not compared.
        others
            Candidates of the kinds before this one.
        members
            Number of models to be averaged.
        """

    def fill_in(self, rank: int) -> bool:
        """Fit the rank half-way to the next smaller one; returns whether there was one worth fitting."""


@dataclass(frozen=True)
class KindChoice:
    """Choice between kinds of models, and of their number of states.

    Parameters
    ----------
    kind, rank
        The choice.
    ranks
        All candidates, by increasing number of free parameters.
    is_final
        Whether the number of states is final; otherwise, for classes, another search must choose it.
    left_out
        What was not tried, and why; "" if nothing was left out.
    """

    kind: str
    rank: int
    ranks: Comparison
    is_final: bool
    left_out: str = ""

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Return all comparisons."""
        return (self.ranks,)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return sentences that explain the choice."""
        kinds = {str(point.settings["kind"]): None for point in self.ranks.points}
        *others, last = sorted(kinds)
        named = f"{', '.join(others)} and {last}" if others else last
        reason = f"{named}: {self.ranks.reason}"
        return (f"{reason}; {self.left_out}" if self.left_out else reason,)


def choose_kind(
    splits: Sequence[RankSamples],
    kinds: Sequence[FitKind],
    *,
    is_forced: bool = False,
    members: int = 1,
    seed: int = 0,
    **run: Unpack[RunOptions],
) -> KindChoice | None:
    """Compare latent classes and other kinds, and choose the simplest candidate that is as good as the best.

    Parameters
    ----------
    splits
        The same samples split into training and held-out parts, once or in several ways. With a target, classes are
        fitted to the target, with the number of states that is best for other kinds, and larger numbers are left to
        another search.
    kinds
        The other kinds.
    is_forced
        Whether latent classes are ruled out regardless of the samples.
    members
        Number of models to be averaged. Single models are compared, and the number of classes for averages is left to
        another search.
    seed
        Seed of the starts.
    **run
        As for `pmflib.fits.ranks.by_samples.select_rank_by_samples`; other kinds, fitted in this process, share the
        budget.

    Returns
    -------
    The choice; None if there is nothing to choose: no samples, a single variable, or tables too large to be tried by
    default.
    """
    if not splits:
        return None
    schema = splits[0].schema
    if schema.n_variables < 2 or not all(each.is_modest(schema.offsets, 2) for each in kinds):
        return None
    on_progress = find_listener(run.get("on_progress"))
    budget = run["budget"] = WorkBudget.share(run.get("budget", DEFAULT_BUDGET))
    searches: dict[str, KindSearch] = {
        each.name: each.search(splits, seed, on_progress, budget) for each in kinds
    }
    classes: SampleSearch | None = None
    if not is_forced and splits[0].target is None:
        classes = SampleSearch.open(splits, RANKS_BY_SAMPLES, seed=seed, **run)
        classes.run(2, [1], FEW)
        if classes.has_converged:
            classes.fill_in()
    others: list[Candidate] = []
    for search in searches.values():
        search.run(classes, others, members)
        others += search.candidates
    given: list[Candidate] = []
    if classes is None and not is_forced and others:
        rank = max(others, key=lambda each: float(each.scores.mean())).rank
        given = [fit_plain(splits[0], rank, seed)]
    while True:
        candidates = given if classes is None else list_classes(classes, splits[0])
        candidates = candidates + [x for search in searches.values() for x in search.candidates]
        candidates.sort(key=lambda each: each.order)
        if not candidates:
            return None
        compared = compare_kinds(candidates)
        chosen = candidates[compared.points.index(compared.chosen)]
        if classes is not None and _goes_on(classes, chosen, splits[0]):
            continue
        if chosen.kind not in searches or not searches[chosen.kind].fill_in(chosen.rank):
            break
    left_out = "" if classes is None or chosen.kind != "classes" else classes.left_out
    left_out = "; ".join(filter(None, (left_out, *(each.left_out for each in searches.values()))))
    is_final = chosen.kind != "classes" or (classes is not None and members == 1)
    return KindChoice(chosen.kind, chosen.rank, compared, is_final, left_out)


def compare_kinds(candidates: Sequence[Candidate]) -> Comparison:
    """Compare candidates in the order of their free parameters, and choose the first that is as good as the best."""

    def subtract(first: int, second: int) -> tuple[float, float]:
        return compare_samples(candidates[first].scores, candidates[second].scores)

    return compare_candidates(
        "sample",
        [each.settings for each in candidates],
        [float(each.scores.mean()) for each in candidates],
        subtract=subtract,
        rule="least",
    )


def list_classes(classes: SampleSearch, samples: RankSamples) -> list[Candidate]:
    """Return the candidates of a search over latent classes, each rank with its best pseudo-count."""
    return [
        Candidate(
            "classes",
            rank,
            count_classes(samples, rank),
            classes.list_scores(classes.find_best_fit(rank)),
        )
        for rank in classes.ranks
    ]


def fit_plain(samples: RankSamples, rank: int, seed: int) -> Candidate:
    """Fit latent classes of a given rank to the target."""
    options = Options.make("random", PSEUDO_COUNT, 1, rank)
    passes = Passes(*LIMITS, False, None, None)
    fit = EMFit(samples.schema, rank, options, seed, passes, samples.target)
    offsets = samples.schema.offsets
    held_out = BlocksInMemory.cut(samples.held_out, offsets, rank, samples.target)
    model = fit.fit_block(samples.block, held_out)[1].model
    return Candidate("classes", rank, count_classes(samples, rank), samples.score(model))


def count_classes(samples: RankSamples, rank: int) -> int:
    """Return the number of free parameters of latent classes."""
    return rank * (samples.schema.n_levels - samples.schema.n_variables) + rank - 1


def _goes_on(classes: SampleSearch, chosen: Candidate, samples: RankSamples) -> bool:
    """Continue doubling the number of classes if that may help; returns whether it was done."""
    if classes.has_converged:
        return False
    most = MAX_RANK
    if chosen.kind != "classes":
        most = max(classes.ranks)
        while 2 * most <= MAX_RANK and count_classes(samples, 2 * most) <= chosen.n_parameters:
            most *= 2
        if most == max(classes.ranks):
            return False
    tried = classes.ranks
    classes.go_on(most)
    classes.fill_in()
    return classes.ranks != tried
