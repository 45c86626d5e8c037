"""Search for the best optimum of a small fit: kinds of starts compete on equal work until the top is found again.

EM ends at one of many optima. Independent starts meet the best of them rarely where states are many, but most of what
they end at is right about most states. So the best fits found so far are kept, and starts are also made of them: the
states of two, those most alike made one, and one fit with two states made one and another split in two. Work is counted
in passes, never by the clock, so that the same data and seed give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pmflib.core.arrays import Parameters, normalise_blocks
from pmflib.em.latent_classes import ClassState, Runs, join_members
from pmflib.fitting.starts import (
    FIRST_PASSES,
    MERGE_PASSES,
    WIDENED,
    Starts,
    find_losses,
    merge_alike_states,
    merge_states,
)
from pmflib.solvers import PseudoCounts
from pmflib.solvers.pairs.pair_matrix import open_start

DRAWN = ("merged", "random")
"""Starts that are others every time: those of `merge_alike_states`, and random ones."""


@dataclass(frozen=True)
class SearchParameters:
    """Parameters of the search; chosen on votes (missing votes hidden, and as a level), car and drawn tables.

    Parameters
    ----------
    n_kept
        Best different optima that starts are made of.
    n_first
        Starts that are made of nothing, before any is made of optima; and the least number of them in all.
    n_common
        Times that the top has to be found, by runs that did not start from it, where it is by half of these.
    n_found
        Times that it has to be found where most runs end elsewhere.
    longer, least_passes
        Then as well: times the passes that had been made when it was first found, and passes, that the search has to
        make.
    short_passes
        Passes of every run before it is judged whether it may come among the kept ones.
    hope
        Times what its last two passes have gained that a short run may still gain.
    same
        Nats per sample by which two runs that end at one optimum may differ.
    join_passes
        Passes in which the states of two optima, together, are made as many as are requested.
    opened
        Share of the variables' own PMFs in a start that is made of optima: EM never leaves a zero.
    most_work, most_passes
        The search ends in any case after so much work, observed cells times states times passes: a second or two; and
        after so many passes, for those of few samples have a cost of their own.
    share
        Share of the passes left that a run may take after its short passes, so that of few passes no start takes all.
    loose
        Times the tolerance of convergence at which its runs end.
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
    """Number of optima that a search keeps at most: no more than it has passes for.

    Parameters
    ----------
    work
        Observed cells times states.
    """
    n_runs = 1 + int(SEARCH.most_work / max(work, 1)) // SEARCH.short_passes
    return min(SEARCH.n_kept, n_runs)


@dataclass(frozen=True, eq=False)
class Optimum:
    """Where a run of EM has ended.

    Parameters
    ----------
    state
        State of EM at its end.
    number
        Which run of the search it was.
    """

    state: ClassState
    number: int

    @property
    def model(self) -> Parameters:
        """Prior and factors."""
        return self.state.parameters

    @property
    def objective(self) -> float:
        """Log-likelihood of the training samples and log-density of the pseudo-counts, nats per sample."""
        return -self.state.loss_history[-1]


@dataclass(frozen=True, eq=False)
class Found:
    """What a search has found.

    Parameters
    ----------
    optima
        The best different optima, by falling objective, at least one.
    starts
        Start methods, and how many starts of each were run, at least one.
    n_made
        Starts that were made of optima.
    n_top
        Times that the top was found, by runs that did not start from it.
    n_passes
        Passes of all runs.
    """

    optima: tuple[Optimum, ...]
    starts: tuple[tuple[str, int], ...]
    n_made: int
    n_top: int
    n_passes: int

    @property
    def models(self) -> tuple[Parameters, ...]:
        """The optima themselves."""
        return tuple(each.model for each in self.optima)

    def describe(self) -> str:
        """Say how the optimum was found: a note."""
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
    """A search under way, under one pseudo-count.

    Parameters
    ----------
    runs
        Runs on the training samples; what they hold out is not used, and no state of the search is saved.
    starts
        Starts by their method.
    methods
        Start methods, each a kind of its own, with one of `DRAWN` at least; the others, which draw next to nothing, are
        run once.
    pseudo_count
        Mean pseudo-count per level and state.
    share
        Share of the passes after which the search ends in any case, in (0, 1].

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
        """Passes made so far, of models of the requested rank."""
        return self._n_known_passes + sum(self._spent.values())

    def run(self, models: Sequence[Parameters] = ()) -> Found:
        """Search, after going on from models that are known already, such as fits of some of the samples."""
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
        """Whether there were passes enough, or the top was found by most runs; or again and again, by few of many."""
        if not self._optima:
            return False
        if self.n_passes >= self._max_passes:
            return True
        if not self._n_made:
            # a single fit has nothing to be joined with
            return len(self._optima) == 1 and self._is_common()
        is_found = self._n_top >= SEARCH.n_found and self.n_passes >= max(
            SEARCH.longer * self._top_at, SEARCH.least_passes
        )
        return is_found or self._is_common()

    def _is_common(self) -> bool:
        """Whether half of the runs that did not start from the top have ended there."""
        n_least = max(SEARCH.n_common, self._n_independent / 2)
        return self._n_top >= n_least and sum(self._n_starts.values()) >= SEARCH.n_first

    def _try_next(self) -> None:
        """Make a start of the kind that has had the least work, and run it as far as there is hope."""
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
        """Kinds of starts that can be made now."""
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
        """Pairs of optima that have not been joined yet, the best first."""
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
        """Make a start of the states of two optima."""
        self._spent["join"] += WIDENED * SEARCH.join_passes
        both = self._open(join_members([first.model, second.model]))
        return self._merge(both, 0, SEARCH.join_passes)

    def _split(self) -> tuple[Parameters, bool]:
        """Make two states of an optimum one, and two of another, by chance; and whether it was the top."""
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
        """Run a start until it has converged; None where a few passes show that it will not come among the kept."""
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
        """Passes that a run may take, of those that are left."""
        return int(SEARCH.share * (self._max_passes - self.n_passes))

    def _run_limited(self, name: str, start: Parameters, limit: int) -> ClassState:
        """Run EM for at most so many passes, and one at least."""
        limit = max(1, min(limit, self._runs.max_passes))
        return replace(self._runs, max_passes=limit).run(name, [start], self._pseudo_count)

    def _note(self, state: ClassState, *, counts: bool) -> None:
        """Keep an optimum that is among the best and different from them; count where it is the top again."""
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
