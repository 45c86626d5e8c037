"""One fit of latent classes with forests; starts, sharing and shrinkage are chosen on held-out samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.comparison import Comparison, compare_candidates
from pmflib.base.defaults import Limits
from pmflib.base.pseudo_counts import PseudoCounts
from pmflib.em.block_source import BlocksInMemory
from pmflib.families.forests.em import (
    TreeOptions,
    TreeRun,
    TreeState,
    add_up,
    run_tree_em,
    score_under_forests,
)
from pmflib.families.forests.statistics import TreeParameters, tree_m_step
from pmflib.papers.pair_matrix import start_random

MOST_STARTS = 12
"""Maximum number of random starts compared with the model without edges."""
LEAST_STARTS = 2
"""Minimum number of random starts; with many states the start matters less."""
START_ROWS = 20_000
"""Approximate number of distinct rows on which starts are compared."""
START_WORK = 30_000_000
"""Observed cells times rank, over all random starts, above which their number is reduced."""
SEARCH_SECONDS = (6e-10, 4e-8, 3e-10)
"""Time of a fit with forests in seconds: of a pass, per observed cell and state; of a structure search, per n_levels^2
and state, and per row, pair of variables and state. Measured on one core of a 2023 server, as by
``benchmarks/ranks/choice_times.py``.
"""
ROUNDS = ((12, 6), (30, 3))
"""Number of passes of all runs, and number of the best runs that continue; in two rounds."""
FINAL_PASSES = 40
"""Typical number of passes of the last run, for estimates of its time."""
PLAIN_PASSES = 3
"""Number of passes without edges before the first structure search from a random start."""
CLIMB_PATIENCE = 4
"""Maximum number of passes without an improvement of the held-out log-likelihood when options of a good fit are
varied.
"""
PENALTIES = (1.0, 0.5)
"""Penalties per parameter of an edge to compare; the second is used only if held-out samples clearly improve."""
EDGE_PSEUDO_COUNTS = (1.0, 4.0, 16.0, 64.0)
POOLED_SHARES = (0.0, 0.5, 0.8)
PSEUDO_COUNTS = (0.1, 0.3, 1.0, 2.0, 5.0, 10.0, 20.0)
"""Pseudo-counts to compare, neighbours of the best in turn; increasing."""


@dataclass(frozen=True, eq=False)
class TreeFit:
    """Settings of a fit of latent classes with forests.

    Parameters
    ----------
    training, held_out
        Training and held-out samples.
    singles
        float64 of shape (n_levels,), PMF of each variable.
    rank
        Number of latent states of each member.
    seed
        Seed of the starts.
    limits
        Stopping criteria.
    on_pass
        Called with the name of a run and its state after each pass.
    """

    training: BlocksInMemory
    held_out: BlocksInMemory
    singles: FloatArray
    rank: int
    seed: int
    limits: Limits
    on_pass: Callable[[str, TreeState], None] | None = None

    def fit(
        self, plain: TreeParameters | None, first: TreeOptions
    ) -> tuple[TreeRun, list[Comparison]]:
        """Fit one model: compare starts and sharing after some passes, then the shrinkage of the best.

        Parameters
        ----------
        plain
            Model without edges, also used as a start.
        first
            Initial options.
        """
        runs = self._try_starts(plain, first)
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

    def _try_starts(
        self,
        plain: TreeParameters | None,
        first: TreeOptions,
    ) -> dict[tuple[str, bool], TreeRun]:
        """Return the best starts after some passes, with one shared forest and with one forest per state."""
        # a subset of the samples is enough to distinguish starts
        trial = replace(
            self, training=self.training.thin(START_ROWS), held_out=self.held_out.thin(START_ROWS)
        )
        n_starts = count_starts(trial.training.n_observed, trial.rank)
        starts = {f"random {k}": trial._open(k, first) for k in range(n_starts)}
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
        return runs

    def _go_on(
        self, runs: dict[tuple[str, bool], TreeRun], limits: Limits
    ) -> dict[tuple[str, bool], TreeRun]:
        """Continue each run from its best model."""
        return {
            key: self._run(key[0], run.parameters, run.options, limits) for key, run in runs.items()
        }

    def fit_member(self, k: int, options: TreeOptions) -> TreeRun:
        """Fit another member from its own start, with the options of the first."""
        return self._run(f"member {k}", self._open(MOST_STARTS + k, options), options, self.limits)

    def _climb(
        self, best: TreeRun, field: str, values: Sequence[float], comparisons: list[Comparison]
    ) -> TreeRun:
        """Hill-climb over the values of one option by the held-out score."""
        tried = {getattr(best.options, field): best}
        grid = sorted({*values, getattr(best.options, field)})
        for step in (1, -1):
            while True:
                here = max(tried, key=lambda value: tried[value].score)
                index = grid.index(here) + step
                if not 0 <= index < len(grid) or grid[index] in tried:
                    break
                options = best.options._replace(**{field: grid[index]})
                tried[grid[index]] = self._run(
                    f"{field} {grid[index]}",
                    tried[here].parameters,
                    options,
                    self.limits._replace(patience=min(CLIMB_PATIENCE, self.limits.patience)),
                    keeps_start=False,
                )
        ordered = sorted(tried)
        chosen = max(tried, key=lambda value: tried[value].score)
        if field == "penalty":
            # more edges are accepted only if held-out samples clearly improve
            gain, error = self.held_out.compare(
                [tried[chosen].parameters], [best.parameters], score_under_forests
            )
            chosen = chosen if gain > error else getattr(best.options, field)
        comparisons.append(
            compare_candidates(
                "sample",
                [{field: value} for value in ordered],
                [tried[value].score for value in ordered],
                chosen=ordered.index(chosen),
            )
        )
        return tried[chosen]

    def _choose(self, runs: dict[str, TreeRun]) -> Comparison:
        """Compare runs; a shared forest wins ties."""
        names = sorted(runs, key=lambda each: (not runs[each].options.shared, -runs[each].score))
        found = [runs[name] for name in names]

        def subtract(first: int, second: int) -> tuple[float, float]:
            return self.held_out.compare(
                [found[first].parameters], [found[second].parameters], score_under_forests
            )

        scores = [each.score for each in found]
        return compare_candidates(
            "sample", [{"start": name} for name in names], scores, subtract=subtract, rule="best"
        )

    def _take(self, runs: dict[tuple[str, bool], TreeRun], comparison: Comparison) -> TreeRun:
        chosen = comparison.chosen.settings["start"]
        return next(
            run for (name, kind), run in runs.items() if f"{name}, {_SHARING[kind]}" == chosen
        )

    def _open(self, k: int, options: TreeOptions) -> TreeParameters:
        """Return a random start after some passes without edges."""
        rng = np.random.default_rng([self.seed, k])
        offsets = self.training.offsets
        prior, factors = start_random(self.singles, offsets, rank=self.rank, rng=rng)
        found = TreeParameters.plain(prior, factors, offsets)
        pseudo_counts = PseudoCounts.shaped_by(self.singles, offsets, options.pseudo_count)
        for _ in range(PLAIN_PASSES):
            found = tree_m_step(
                add_up(self.training, found), found, pseudo_counts, options.edge_pseudo_count
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
            limits=limits,
        )


def count_starts(n_observed: float, rank: int) -> int:
    """Return the number of random starts, depending on rank and observed cells."""
    if rank == 1:
        return 1
    affordable = START_WORK // max(round(n_observed * rank), 1)
    return max(LEAST_STARTS, min(MOST_STARTS, affordable))


def _take_best(
    runs: dict[tuple[str, bool], TreeRun], number: int
) -> dict[tuple[str, bool], TreeRun]:
    """Return the best runs, including the best with one shared forest and with one forest per state."""
    ordered = sorted(runs, key=lambda each: -runs[each].score)
    kept = set(ordered[:number])
    for shared in (True, False):
        kept.update([each for each in ordered if each[1] == shared][:1])
    return {each: runs[each] for each in ordered if each in kept}


def estimate_run(offsets: IntArray, n_rows: int, rank: int, n_passes: int = FINAL_PASSES) -> float:
    """Estimate the time of a run by the cost model, seconds; a run of any length has about three searches."""
    n_variables, n_levels = offsets.size - 1, int(offsets[-1])
    cells, entries, pairs = SEARCH_SECONDS
    search = entries * n_levels**2 + pairs * n_rows * n_variables**2 / 2
    return rank * (n_passes * cells * n_rows * n_variables + 3 * search)


_SHARING = {True: "one forest", False: "a forest per state"}
