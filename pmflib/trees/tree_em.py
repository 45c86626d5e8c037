"""EM of latent classes with forests: passes, and forests found anew from time to time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.solvers.pairs.pseudo_counts import PseudoCounts
from pmflib.trees.forest import Forest
from pmflib.trees.passed_samples import Samples
from pmflib.trees.structure import grow_forest, measure_gains
from pmflib.trees.tree_statistics import TreeParameters, TreeStatistics, m_step

LEAST_PASSES = 2
"""Passes from one search for the forests to the next, at first; they double as long as the forests change."""


class TreeOptions(NamedTuple):
    """How forests are found, and how tables are shrunk.

    Parameters
    ----------
    shared
        Whether all states have one forest; else each has its own.
    pseudo_count
        Mean pseudo-count per level and state, as for `pmflib.fit_em`.
    edge_pseudo_count
        Samples per level of a parent that are added to those of a state.
    pooled_share
        Share of these that are as in all states with the edge; the others are as if the variable did not depend on it.
    penalty
        What a free parameter of an edge costs, as a share of the Bayesian information criterion.
    """

    shared: bool = False
    pseudo_count: float = 0.3
    edge_pseudo_count: float = 4.0
    pooled_share: float = 0.5
    penalty: float = 1.0


@dataclass(frozen=True, eq=False)
class TreeRun:
    """A run of EM.

    Parameters
    ----------
    parameters
        The model: that of the best held-out log-likelihood, or else the last.
    options
        How it was fitted.
    log_likelihoods
        Training log-likelihood before each pass, nats per sample.
    held_out
        Held-out log-likelihood after each pass, nats per sample, that of the start first, -inf where it was not to be
        kept; empty without held-out samples.
    best_pass
        Passes after which the model was reached.
    converged
        Whether the run ended before its limit of passes.
    """

    parameters: TreeParameters
    options: TreeOptions
    log_likelihoods: tuple[float, ...]
    held_out: tuple[float, ...]
    best_pass: int
    converged: bool

    @classmethod
    def begin(cls, start: TreeParameters, options: TreeOptions) -> TreeRun:
        """A run without passes."""
        return cls(start, options, (), (), 0, False)

    @property
    def score(self) -> float:
        """Best held-out log-likelihood, nats per sample."""
        return max(self.held_out)


@dataclass(frozen=True, eq=False)
class TreeState:
    """State of a run: enough to continue from, to the same bits.

    Parameters
    ----------
    current, best
        The model that the next pass is made under, and the best so far.
    log_likelihoods, held_out, best_pass
        As in `TreeRun`, so far.
    last_change
        Pass after which the forests were others than before.
    due
        Number of passes after which the forests are found anew.
    gap
        Passes from then to the next time.
    """

    current: TreeParameters
    best: TreeParameters
    log_likelihoods: tuple[float, ...] = ()
    held_out: tuple[float, ...] = ()
    best_pass: int = 0
    last_change: int = 0
    due: int = 0
    gap: int = LEAST_PASSES

    @property
    def n_passes(self) -> int:
        """Number of passes made."""
        return len(self.log_likelihoods)

    def has_converged(self, tol: float, patience: int) -> bool:
        """Whether no further pass is needed: limits are as for `pmflib.fit_em`."""
        if self.held_out:
            # new forests get some passes of their own
            return self.n_passes - max(self.best_pass, self.last_change) >= patience
        if self.n_passes < 2 or self.n_passes <= self.last_change + 2:
            return False
        before, last = self.log_likelihoods[-2:]
        return abs(last - before) <= tol * abs(last)


def run_tree_em(
    samples: Samples,
    start: TreeParameters,
    options: TreeOptions,
    singles: FloatArray,
    *,
    held_out: Samples | None = None,
    keeps_start: bool = True,
    max_passes: int,
    tol: float,
    patience: int,
    state: TreeState | None = None,
    on_pass: Callable[[TreeState], None] | None = None,
) -> TreeRun:
    """Make passes until the likelihood has converged, or that of held-out samples has stopped rising.

    Parameters
    ----------
    samples
        Training samples.
    start
        Where to begin; without edges, or with some.
    options
        How forests are found and tables shrunk.
    singles
        float64 of shape (n_levels,), PMF of each variable, as `pmflib.counting.marginals.estimate_singles` has it.
    held_out
        Samples that judge each pass.
    keeps_start
        Whether the start itself may be the best model; else only what these options have led to.
    max_passes, tol, patience
        As for `pmflib.fit_em`.
    state
        State of the same run to continue from, in place of the start.
    on_pass
        Called with the state after each pass.

    Returns
    -------
    The run. Equal arguments give equal bits, whatever the number of threads or workers.
    """
    pseudo_counts = PseudoCounts.shaped_by(singles, samples.offsets, options.pseudo_count)
    if state is None:
        scores = () if held_out is None else (held_out.score([start]) if keeps_start else -np.inf,)
        state = TreeState(start, start, held_out=scores)
    while state.n_passes < max_passes and not state.has_converged(tol, patience):
        state = _make_pass(samples, state, options, pseudo_counts, held_out, tol)
        if on_pass is not None:
            on_pass(state)
    return TreeRun(
        state.best,
        options,
        state.log_likelihoods,
        state.held_out,
        state.best_pass,
        state.has_converged(tol, patience),
    )


def _make_pass(
    samples: Samples,
    state: TreeState,
    options: TreeOptions,
    pseudo_counts: PseudoCounts,
    held_out: Samples | None,
    tol: float,
) -> TreeState:
    """State after one more pass, which finds the forests anew where that is due."""
    number, current = state.n_passes, state.current
    due, gap, last_change = state.due, state.gap, state.last_change
    if number == due:
        old = current.forest.parents
        current, likelihood = find_forest(samples, current, options, pseudo_counts)
        due, gap = number + gap, 2 * gap
        if number and np.array_equal(old, current.forest.parents):
            due = max(due, 4 * number)
        else:
            last_change = number
    else:
        statistics = samples.add_up(current)
        shrinkage = options.edge_pseudo_count, options.pooled_share
        current = m_step(statistics, current, pseudo_counts, *shrinkage)
        likelihood = statistics.log_likelihood / max(statistics.n_rows, 1)
    best, best_pass, scores = state.best, state.best_pass, state.held_out
    if held_out is None:
        best, best_pass = current, number + 1
    else:
        score = held_out.score([current])
        if score > max(scores) + tol * abs(score):
            best, best_pass = current, number + 1
        scores = (*scores, score)
    likelihoods = (*state.log_likelihoods, likelihood)
    return TreeState(current, best, likelihoods, scores, best_pass, last_change, due, gap)


def find_forest(
    samples: Samples,
    parameters: TreeParameters,
    options: TreeOptions,
    pseudo_counts: PseudoCounts,
) -> tuple[TreeParameters, float]:
    """Find forests and tables under the current posteriors, in a pass that counts all pairs by state.

    Returns
    -------
    The new parameters, and the log-likelihood of the samples before, nats per sample. Where cells are missing, tables
    are of the samples that hold both variables; the next pass takes all.
    """
    offsets, rank = samples.offsets, parameters.prior.size
    n_chunk = samples.count_side_by_side()
    chunks = [range(first, min(first + n_chunk, rank)) for first in range(0, rank, n_chunk)]
    singles = samples.add_up(parameters)
    parents = np.full((rank, offsets.size - 1), -1, np.int32)
    total: FloatArray | float = 0.0
    mass = np.zeros(0)
    for chunk in chunks:
        mass = samples.count_pairs(parameters, chunk.start, len(chunk))
        for state in chunk:
            gains = measure_gains(mass[state - chunk.start], offsets, options.penalty)
            if options.shared:
                total = total + gains
            else:
                parents[state] = grow_forest(gains)
    if options.shared:
        parents[:] = grow_forest(np.asarray(total))
    forest = Forest(parents, offsets)
    counts = np.zeros(forest.n_entries)
    levels = parameters.forest.sum_levels(singles.mass)
    for chunk in chunks:
        if len(chunks) > 1:
            mass = samples.count_pairs(parameters, chunk.start, len(chunk))
        for state in chunk:
            for place, parent in enumerate(parents[state].tolist()):
                mine = slice(int(offsets[place]), int(offsets[place + 1]))
                if parent < 0:
                    forest.cut(counts, state, place)[:] = levels[mine, state]
                else:
                    above = slice(int(offsets[parent]), int(offsets[parent + 1]))
                    forest.cut(counts, state, place)[:] = mass[state - chunk.start, above, mine]
    # without mass, variables keep the PMF that they have
    own = parameters.forest.find_marginals(parameters.tables)
    adopted = TreeParameters(parameters.prior, forest, forest.spread_levels(own))
    found = TreeStatistics(counts, singles.state_mass, singles.log_likelihood, singles.n_rows)
    updated = m_step(found, adopted, pseudo_counts, options.edge_pseudo_count, options.pooled_share)
    return updated, singles.log_likelihood / max(singles.n_rows, 1)
