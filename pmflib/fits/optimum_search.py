"""Search for the best optimum of a small fit: kinds of starts compete for equal work until the best optimum recurs.

EM ends in one of many local optima. With many states, independent starts rarely reach the best one, but most of their
end points are right about most states. The best fits so far are therefore kept, and new starts are made from them: by
joining the states of two fits and merging the most similar ones, or by merging two states of a fit and splitting
another. Work is counted in passes rather than time, so the same data and seed give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pmflib.base.arrays import Parameters, normalise_blocks
from pmflib.base.pseudo_counts import PseudoCounts
from pmflib.em.latent_classes import ClassState, Runs, join_members
from pmflib.fits.starts import (
    FIRST_PASSES,
    MERGE_PASSES,
    WIDENED,
    Starts,
    find_losses,
    merge_alike_states,
    merge_states,
)
from pmflib.papers.pair_matrix import open_start

DRAWN = ("merged", "random")
"""Starts that differ every time: those of `merge_alike_states`, and random ones."""


@dataclass(frozen=True)
class SearchParameters:
    """Parameters of the search, chosen on votes (with missing votes hidden, and as a level), car and simulated tables.

    Parameters
    ----------
    n_kept
        Number of the best distinct optima from which starts are made.
    n_first
        Number of independent starts before any is made from optima, and the minimum number of independent starts.
    n_common
        Number of times the best optimum must be found by runs that did not start from it, if half of all runs end
        there.
    n_found
        Number of times it must be found if most runs end elsewhere.
    longer, least_passes
        Additional conditions in that case: the multiple of the passes made when it was first found, and the minimum
        number of passes.
    short_passes
        Number of passes of every run before it is decided whether the run can be among the best.
    hope
        Multiple of the gain in its last two passes that a short run is expected to gain at most.
    same
        Difference in nats per sample below which two runs have reached the same optimum.
    join_passes
        Number of passes in which the joined states of two optima are reduced to the requested number.
    opened
        Weight of the variables' own PMFs in a start made from optima, since EM never leaves a zero.
    most_work, most_passes
        Upper limits of the search: work as observed cells times states times passes (a second or two), and number of
        passes, since runs on few samples have fixed costs.
    share
        Fraction of the remaining passes that a run may use after its short passes, so that no start uses all of a small
        budget.
    loose
        Multiple of the convergence tolerance at which runs of the search end.
    """

    n_kept: int = 8
    n_first: int = 4
    n_common: int = 4
    n_found: int = 5
    longer: float = 3.0
    least_passes: int = 1000
    short_passes: int = 8
    hope: float = 3.0
    same: float = 1e-4
    join_passes: int = 2
    opened: float = 1e-3
    most_passes: int = 10_000
    most_work: float = 2.5e9
    share: float = 0.25
    loose: float = 3.0


SEARCH = SearchParameters()


def count_kept(work: float) -> int:
    """Return the maximum number of optima kept by a search, limited by the passes it can afford.

    Parameters
    ----------
    work
        Observed cells times states.
    """
    n_runs = 1 + int(SEARCH.most_work / max(work, 1)) // SEARCH.short_passes
    return min(SEARCH.n_kept, n_runs)


@dataclass(frozen=True, eq=False)
class Optimum:
    """End point of an EM run.

    Parameters
    ----------
    state
        Final EM state.
    number
        Number of the run within the search.
    """

    state: ClassState
    number: int

    @property
    def model(self) -> Parameters:
        """Return prior and factors."""
        return self.state.parameters

    @property
    def objective(self) -> float:
        """Return the penalised log-likelihood of the training samples, nats per sample."""
        return -self.state.loss_history[-1]


@dataclass(frozen=True, eq=False)
class Found:
    """Result of a search.

    Parameters
    ----------
    optima
        Best distinct optima by decreasing objective, at least one.
    starts
        Start methods with the number of starts of each, at least one.
    n_made
        Number of starts made from optima.
    n_top
        Number of times the best optimum was found by runs that did not start from it.
    n_passes
        Number of passes of all runs.
    """

    optima: tuple[Optimum, ...]
    starts: tuple[tuple[str, int], ...]
    n_made: int
    n_top: int
    n_passes: int

    @property
    def models(self) -> tuple[Parameters, ...]:
        """Return the models of the optima."""
        return tuple(each.model for each in self.optima)

    def describe(self) -> str:
        """Describe how the optimum was found."""
        n_starts = sum(number for _, number in self.starts)
        if not self.optima[0].state.converged:
            return (
                f"the best of {n_starts + self.n_made} starts after {self.n_passes} passes in all"
            )
        times = "once" if self.n_top == 1 else f"{self.n_top} times"
        return (
            f"the best optimum of {n_starts} starts, and of {self.n_made} made of their fits, was found {times} in "
            f"{self.n_passes} passes"
        )


class OptimumSearch:
    """State of a search with one pseudo-count.

    Parameters
    ----------
    runs
        Runs on the training samples; held-out samples are ignored, and no state is saved.
    starts
        Starts by their method.
    methods
        Start methods, including at least one of `DRAWN`; the others, which are (almost) deterministic, are run once.
    pseudo_count
        Mean pseudo-count per level and state.
    share
        Fraction of the passes after which the search ends, in (0, 1].

    References
    ----------
    Ueda, Nakano, Ghahramani, Hinton (2000), "SMEM algorithm for mixture models", for states split and merged;
    Pernkopf, Bouchaffra (2005), "Genetic-based EM algorithm for learning Gaussian mixture models", for fits made of
    two; Biernacki, Celeux, Govaert (2003), "Choosing starting values for the EM algorithm", for short runs.
    """

    def __init__(
        self,
        runs: Runs,
        starts: Starts,
        methods: Sequence[str],
        pseudo_count: float,
        share: float = 1.0,
    ) -> None:
        self._runs = replace(
            runs, accelerate=True, checkpoint=None, held_out=None, tol=SEARCH.loose * runs.tol
        )
        self._starts, self._pseudo_count = starts, pseudo_count
        self._shape = PseudoCounts.shaped_by(runs.singles, runs.offsets, pseudo_count)
        work = runs.training.n_observed * starts.rank
        most = share * min(SEARCH.most_work / max(work, 1), SEARCH.most_passes)
        self._max_passes = float(most)
        self._n_kept = count_kept(work)
        self._optima: list[Optimum] = []
        self._n_starts = dict.fromkeys(methods, 0)
        self._spent = dict.fromkeys((*methods, "join", "split"), 0.0)
        self._joined: set[tuple[int, int]] = set()
        self._n_runs = self._n_made = self._n_known_passes = 0
        self._n_top = self._n_independent = 0
        self._top_at = 0.0

    @property
    def n_passes(self) -> float:
        """Return the number of passes so far, in passes of models of the requested rank."""
        return self._n_known_passes + sum(self._spent.values())

    def run(self, models: Sequence[Parameters] = ()) -> Found:
        """Run the search, optionally continuing from known models such as fits to some of the samples."""
        for model in models[: self._n_kept]:
            known = self._run_limited("known", model, self._limit_run())
            self._n_known_passes += known.n_passes
            self._note(known, counts=False)
        while not self._is_over():
            self._try_next()
        return Found(
            tuple(self._optima),
            tuple((method, number) for method, number in self._n_starts.items() if number),
            self._n_made,
            self._n_top,
            round(self.n_passes),
        )

    def _is_over(self) -> bool:
        """Return whether the passes are used up, or the best optimum was found often enough."""
        if not self._optima:
            return False
        if self.n_passes >= self._max_passes:
            return True
        if not self._n_made:
            # a single fit has no partner
            return len(self._optima) == 1 and self._is_common()
        is_found = self._n_top >= SEARCH.n_found and self.n_passes >= max(
            SEARCH.longer * self._top_at, SEARCH.least_passes
        )
        return is_found or self._is_common()

    def _is_common(self) -> bool:
        """Return whether half of the runs that did not start from the best optimum have ended there."""
        n_least = max(SEARCH.n_common, self._n_independent / 2)
        return self._n_top >= n_least and sum(self._n_starts.values()) >= SEARCH.n_first

    def _try_next(self) -> None:
        """Make a start of the kind with the least work so far, and run it while it is promising."""
        kinds = self._list_kinds()
        kind = min(kinds, key=self._spent.__getitem__)
        before = self._optima[0] if self._optima else None
        if kind == "join":
            first, second = self._list_pairs()[0]
            self._joined.add((first.number, second.number))
            start, from_top = self._join(first, second), first is before
        elif kind == "split":
            start, from_top = self._split()
        else:
            start, from_top = self._make(kind), False
        self._n_made += kind not in self._n_starts
        self._n_independent += not from_top
        state = self._run_hopeful(kind, start)
        if state is not None:
            self._note(state, counts=not from_top)

    def _list_kinds(self) -> list[str]:
        """List the kinds of starts that can be made now."""
        if once := [
            each for each in self._n_starts if each not in DRAWN and not self._n_starts[each]
        ]:
            return once
        left = self._max_passes - self.n_passes
        drawn = [each for each in self._n_starts if each in DRAWN]
        if left < WIDENED * (FIRST_PASSES + MERGE_PASSES) and len(drawn) > 1:
            drawn.remove("merged")
        if sum(self._n_starts.values()) < SEARCH.n_first or not self._optima:
            return drawn
        made = ["join"] if self._list_pairs() else []
        if self._optima[0].model[0].size > 2:
            made.append("split")
        return [*drawn, *made]

    def _list_pairs(self) -> list[tuple[Optimum, Optimum]]:
        """List pairs of optima that have not been joined yet, the best first."""
        pairs = [
            (first, second)
            for last, second in enumerate(self._optima)
            for first in self._optima[:last]
        ]
        return [pair for pair in pairs if (pair[0].number, pair[1].number) not in self._joined]

    def _make(self, method: str) -> Parameters:
        """Make the next start of a method."""
        k = self._n_starts[method]
        self._n_starts[method] += 1
        if method != "merged":
            return self._starts(method, k + 1)[k]
        self._spent[method] += WIDENED * (FIRST_PASSES + MERGE_PASSES)
        wide = self._starts("wide", k + 1)[k]
        return self._merge(wide, FIRST_PASSES, MERGE_PASSES)

    def _join(self, first: Optimum, second: Optimum) -> Parameters:
        """Make a start from the states of two optima."""
        self._spent["join"] += WIDENED * SEARCH.join_passes
        both = self._open(join_members([first.model, second.model]))
        return self._merge(both, 0, SEARCH.join_passes)

    def _split(self) -> tuple[Parameters, bool]:
        """Merge two states of an optimum and split another, at random; also returns whether it was the best optimum."""
        rng = np.random.default_rng([self._starts.seed, self._n_runs, 1])
        place = min(int(rng.geometric(0.5)) - 1, len(self._optima) - 1)
        prior, factors = self._open(self._optima[place].model)
        rank = prior.size
        firsts, seconds = np.triu_indices(rank, 1)
        order = np.argsort(find_losses(prior, factors)[firsts, seconds], kind="stable")
        pair = order[min(int(rng.geometric(0.3)) - 1, order.size - 1)]
        merged, freed = int(firsts[pair]), int(seconds[pair])
        prior, factors = merge_states(prior, factors, merged, freed)
        weights = prior.copy()
        weights[[merged, freed]] = 0
        split = int(rng.choice(rank, p=weights / weights.sum()))
        prior[[split, freed]] = prior[split] / 2
        factors[:, freed] = factors[:, split] * rng.uniform(0.5, 1.5, len(factors))
        factors = normalise_blocks(factors, self._runs.offsets, self._runs.singles[:, None])
        return (prior, factors), place == 0

    def _open(self, model: Parameters) -> Parameters:
        singles = self._runs.singles[:, None]
        return open_start(model, singles, prior_share=SEARCH.opened, factor_share=SEARCH.opened)

    def _merge(self, model: Parameters, first_passes: int, merge_passes: int) -> Parameters:
        (merged,) = merge_alike_states(
            self._runs.training,
            [model],
            self._runs.offsets,
            self._shape,
            first_passes=first_passes,
            merge_passes=merge_passes,
        )
        return merged

    def _run_hopeful(self, kind: str, start: Parameters) -> ClassState | None:
        """Run a start until it converges; None if a few passes show that it will not be among the best."""
        left = max(1, int(self._max_passes - self.n_passes))
        state = self._run_limited(f"{kind}-{self._n_runs}", start, min(SEARCH.short_passes, left))
        self._spent[kind] += state.n_passes
        self._n_runs += 1
        limit = self._limit_run()
        if state.converged or state.n_passes == self._runs.max_passes or limit < 1:
            return state
        losses = state.loss_history
        reached = -losses[-1] + SEARCH.hope * (losses[-min(3, len(losses))] - losses[-1])
        if len(self._optima) == self._n_kept and reached < self._optima[-1].objective:
            return None
        state = self._run_limited(f"{kind}-{self._n_runs}", state.parameters, limit)
        self._spent[kind] += state.n_passes
        return state

    def _limit_run(self) -> int:
        """Return the number of remaining passes that a run may use."""
        return int(SEARCH.share * (self._max_passes - self.n_passes))

    def _run_limited(self, name: str, start: Parameters, limit: int) -> ClassState:
        """Run EM for at most ``limit`` passes, and at least one."""
        limit = max(1, min(limit, self._runs.max_passes))
        return replace(self._runs, max_passes=limit).run(name, [start], self._pseudo_count)

    def _note(self, state: ClassState, *, counts: bool) -> None:
        """Keep an optimum if it is among the best and distinct; count it if it is the best one again."""
        new = Optimum(state, self._n_runs)
        top = self._optima[0].objective if self._optima else -np.inf
        if new.objective > top + SEARCH.same:
            self._n_top, self._top_at = 1, self.n_passes
        elif counts and new.objective > top - SEARCH.same:
            self._n_top += 1
        alike = [
            each for each in self._optima if abs(each.objective - new.objective) <= SEARCH.same
        ]
        if any(each.objective >= new.objective for each in alike):
            return
        kept = [each for each in self._optima if each not in alike] + [new]
        self._optima = sorted(kept, key=lambda each: -each.objective)[: self._n_kept]
