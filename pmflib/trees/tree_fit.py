"""One fit of latent classes with forests: starts, sharing and shrinkage, all chosen on held-out samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.selection.comparison import Comparison, compare
from pmflib.solvers.pairs.pseudo_counts import PseudoCounts
from pmflib.solvers.pairs.random_start import start_random
from pmflib.trees.tree_em import TreeOptions, TreeRun, TreeState, run_tree_em
from pmflib.trees.tree_samples import TreeSamples
from pmflib.trees.tree_statistics import TreeParameters, m_step

MOST_STARTS = 12
"""Random starts that are compared at most, next to the model without edges."""
LEAST_STARTS = 2
"""Random starts that are compared at least: many states leave less to a start."""
START_ROWS = 20_000
"""Distinct rows, about, that starts are compared on."""
START_WORK = 30_000_000
"""Observed cells times rank, over all random starts, from which on there are fewer."""
ROUNDS = ((12, 6), (30, 3))
"""Passes that all runs make, and how many of them, the best, go on; and again."""
PLAIN_PASSES = 3
"""Passes without edges that a random start makes before the forests are first looked for."""
CLIMB_PATIENCE = 4
"""Passes without a rise of the held-out log-likelihood, at most, where an option of a fit that is good is varied."""
PENALTIES = (1.0, 0.5)
"""Costs of a parameter of an edge that are compared: the second where held-out samples gain clearly."""
EDGE_PSEUDO_COUNTS = (1.0, 4.0, 16.0, 64.0)
POOLED_SHARES = (0.0, 0.5, 0.8)
PSEUDO_COUNTS = (0.1, 0.3, 1.0, 2.0, 5.0, 10.0, 20.0)
"""Pseudo-counts that are compared, neighbours of the best in turn; rising."""


class Limits(NamedTuple):
    """When a run ends: as for `pmflib.fit_em`."""

    max_passes: int = 200
    tol: float = 1e-6
    patience: int = 10


@dataclass(frozen=True, eq=False)
class TreeFit:
    """What a fit of latent classes with forests is given.

    Parameters
    ----------
    training, held_out
        Samples to fit and to judge by.
    singles
        float64 of shape (n_levels,), PMF of each variable.
    rank
        Number of latent states of a member.
    seed
        Seed of the starts.
    limits
        When a run ends.
    on_pass
        Called with the name of a run and its state after each pass.
    """

    training: TreeSamples
    held_out: TreeSamples
    singles: FloatArray
    rank: int
    seed: int
    limits: Limits
    on_pass: Callable[[str, TreeState], None] | None = None

    def fit(
        self, plain: TreeParameters | None, first: TreeOptions
    ) -> tuple[TreeRun, list[Comparison]]:
        """Fit one model: starts and sharing are compared after some passes, then shrinkage of the best.

        Parameters
        ----------
        plain
            Model without edges to start from, too.
        first
            Options to begin with.
        """
        # what distinguishes starts shows on fewer samples
        trial = replace(
            self, training=self.training.thin(START_ROWS), held_out=self.held_out.thin(START_ROWS)
        )
        starts = {f"random {k}": trial._open(k, first) for k in range(trial._n_starts)}
        if plain is not None and plain.prior.size == self.rank:
            starts = {"without edges": plain} | starts
        runs = {
            (name, shared): TreeRun.begin(start, first._replace(shared=shared))
            for name, start in starts.items()
            for shared in ((True, False) if self.rank > 1 else (True,))
        }
        for n_passes, n_kept in ROUNDS:
            limits = self.limits._replace(max_passes=min(n_passes, self.limits.max_passes))
            runs = _take_best(trial._go_on(runs, limits), n_kept)
        longer = self._go_on(runs, self.limits)
        comparisons = [
            self._choose({f"{name}, {_SHARING[kind]}": run for (name, kind), run in longer.items()})
        ]
        best = self._take(longer, comparisons[0])
        for field, values in (
            ("penalty", PENALTIES),
            ("edge_pseudo_count", EDGE_PSEUDO_COUNTS),
            ("pooled_share", POOLED_SHARES),
            ("pseudo_count", PSEUDO_COUNTS),
        ):
            best = self._climb(best, field, values, comparisons)
        return best, comparisons

    @property
    def _n_starts(self) -> int:
        """Random starts of the fit."""
        if self.rank == 1:
            return 1
        affordable = START_WORK // max(self.training.n_observed * self.rank, 1)
        return max(LEAST_STARTS, min(MOST_STARTS, affordable))

    def _go_on(
        self, runs: dict[tuple[str, bool], TreeRun], limits: Limits
    ) -> dict[tuple[str, bool], TreeRun]:
        """Continue runs, each from its best model."""
        return {
            key: self._run(key[0], run.parameters, run.options, limits) for key, run in runs.items()
        }

    def fit_member(self, k: int, options: TreeOptions) -> TreeRun:
        """Fit one more model from a start of its own, with the options of another."""
        return self._run(f"member {k}", self._open(MOST_STARTS + k, options), options, self.limits)

    def _climb(
        self, best: TreeRun, field: str, values: Sequence[float], comparisons: list[Comparison]
    ) -> TreeRun:
        """Try the neighbouring values of one option, as long as held-out samples gain."""
        tried = {getattr(best.options, field): best}
        grid = sorted({*values, getattr(best.options, field)})
        for step in (1, -1):
            while True:
                here = max(tried, key=lambda value: tried[value].score)
                place = grid.index(here) + step
                if not 0 <= place < len(grid) or grid[place] in tried:
                    break
                options = best.options._replace(**{field: grid[place]})
                tried[grid[place]] = self._run(
                    f"{field} {grid[place]}",
                    tried[here].parameters,
                    options,
                    self.limits._replace(patience=min(CLIMB_PATIENCE, self.limits.patience)),
                    keeps_start=False,
                )
        ordered = sorted(tried)
        chosen = max(tried, key=lambda value: tried[value].score)
        if field == "penalty":
            # edges are kept few where held-out samples do not clearly want more
            gain, error = self.held_out.compare([tried[chosen].parameters], [best.parameters])
            chosen = chosen if gain > error else getattr(best.options, field)
        comparisons.append(
            compare(
                "sample",
                [{field: value} for value in ordered],
                [tried[value].score for value in ordered],
                chosen=ordered.index(chosen),
            )
        )
        return tried[chosen]

    def _choose(self, runs: dict[str, TreeRun]) -> Comparison:
        """Compare runs; of equals, one with a forest for all states is taken."""
        names = sorted(runs, key=lambda each: (not runs[each].options.shared, -runs[each].score))
        found = [runs[name] for name in names]

        def subtract(first: int, second: int) -> tuple[float, float]:
            return self.held_out.compare([found[first].parameters], [found[second].parameters])

        scores = [each.score for each in found]
        return compare(
            "sample", [{"start": name} for name in names], scores, subtract=subtract, rule="best"
        )

    def _take(self, runs: dict[tuple[str, bool], TreeRun], comparison: Comparison) -> TreeRun:
        wanted = comparison.chosen.settings["start"]
        return next(
            run for (name, kind), run in runs.items() if f"{name}, {_SHARING[kind]}" == wanted
        )

    def _open(self, k: int, options: TreeOptions) -> TreeParameters:
        """Random start, after some passes without edges."""
        rng = np.random.default_rng([self.seed, k])
        offsets = self.training.offsets
        prior, factors = start_random(self.singles, offsets, rank=self.rank, rng=rng)
        found = TreeParameters.plain(prior, factors, offsets)
        pseudo_counts = PseudoCounts.shaped_by(self.singles, offsets, options.pseudo_count)
        for _ in range(PLAIN_PASSES):
            found = m_step(
                self.training.add_up(found), found, pseudo_counts, options.edge_pseudo_count
            )
        return found

    def _run(
        self,
        name: str,
        start: TreeParameters,
        options: TreeOptions,
        limits: Limits,
        *,
        keeps_start: bool = True,
    ) -> TreeRun:
        def report_pass(state: TreeState) -> None:
            if self.on_pass is not None:
                self.on_pass(name, state)

        return run_tree_em(
            self.training,
            start,
            options,
            self.singles,
            held_out=self.held_out,
            keeps_start=keeps_start,
            on_pass=report_pass,
            **limits._asdict(),
        )


def _take_best(
    runs: dict[tuple[str, bool], TreeRun], number: int
) -> dict[tuple[str, bool], TreeRun]:
    """The best runs, and the best with one forest and with a forest per state, for these are found later."""
    ordered = sorted(runs, key=lambda each: -runs[each].score)
    kept = set(ordered[:number])
    for shared in (True, False):
        kept.update([each for each in ordered if each[1] == shared][:1])
    return {each: runs[each] for each in ordered if each in kept}


_SHARING = {True: "one forest", False: "a forest per state"}
