"""EM of latent classes with forests: passes, and forests found anew from time to time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pmflib.core.arrays import Arrays, FloatArray, IntArray
from pmflib.em.checkpoint import Checkpoint
from pmflib.em.driver import run_em
from pmflib.em.forests.samples import TreeSamples
from pmflib.em.forests.structure import grow_forest, measure_edge_gains
from pmflib.model.forests.forest import Forest
from pmflib.model.forests.statistics import TreeParameters, TreeStatistics, tree_m_step
from pmflib.solvers import PseudoCounts

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

    @property
    def parameters(self) -> tuple[TreeParameters, bool]:
        """What the next pass is made under, and whether it finds the forests anew."""
        return self.current, self.n_passes == self.due

    def to_arrays(self) -> Arrays:
        """The state as a checkpoint keeps it."""
        return {
            **self.current.to_arrays("current"),
            **self.best.to_arrays("best"),
            "log_likelihoods": np.array(self.log_likelihoods),
            "held_out": np.array(self.held_out),
            "passes": np.array([self.best_pass, self.last_change, self.due, self.gap]),
        }

    @classmethod
    def from_arrays(cls, offsets: IntArray, arrays: Arrays) -> TreeState:
        """The state that `to_arrays` was called on, to the same bits."""
        current, best = (
            TreeParameters.from_arrays(name, offsets, arrays) for name in ("current", "best")
        )
        log_likelihoods, held_out = (
            tuple(arrays[name].tolist()) for name in ("log_likelihoods", "held_out")
        )
        return cls(current, best, log_likelihoods, held_out, *arrays["passes"].tolist())

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
    samples: TreeSamples,
    start: TreeParameters,
    options: TreeOptions,
    singles: FloatArray,
    *,
    held_out: TreeSamples | None = None,
    keeps_start: bool = True,
    max_passes: int,
    tol: float,
    patience: int,
    checkpoint: Checkpoint[TreeState] | None = None,
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
        Held-out samples that each pass is evaluated on.
    keeps_start
        Whether the start itself may be the best model; else only what these options have led to.
    max_passes, tol, patience
        As for `pmflib.fit_em`.
    checkpoint, on_pass
        As for `pmflib.em.driver.run_em`.

    Returns
    -------
    The run. Equal arguments give equal bits, whatever the number of threads or workers.
    """
    pseudo_counts = PseudoCounts.shaped_by(singles, samples.offsets, options.pseudo_count)

    def begin() -> TreeState:
        scores = () if held_out is None else (held_out.score([start]) if keeps_start else -np.inf,)
        return TreeState(start, start, held_out=scores)

    def evaluate(order: tuple[TreeParameters, bool]) -> TreePass:
        current, is_due = order
        if is_due:
            return find_forest(samples, current, options)
        return TreePass(samples.add_up(current), current)

    def update(state: TreeState, made: TreePass) -> TreeState:
        return _update(state, made, options, pseudo_counts, held_out, tol)

    state = run_em(
        evaluate,
        update,
        begin,
        has_converged=lambda state: state.has_converged(tol, patience),
        max_passes=max_passes,
        checkpoint=checkpoint,
        on_pass=on_pass,
    )
    return TreeRun(
        state.best,
        options,
        state.log_likelihoods,
        state.held_out,
        state.best_pass,
        state.has_converged(tol, patience),
    )


class TreePass(NamedTuple):
    """What a pass has found: statistics, and what the M-step starts from, whose forests they were computed for."""

    statistics: TreeStatistics
    adopted: TreeParameters


def _update(
    state: TreeState,
    made: TreePass,
    options: TreeOptions,
    pseudo_counts: PseudoCounts,
    held_out: TreeSamples | None,
    tol: float,
) -> TreeState:
    """State after one more pass, and when the forests are found anew next."""
    number, statistics = state.n_passes, made.statistics
    due, gap, last_change = state.due, state.gap, state.last_change
    if number == due:
        due, gap = number + gap, 2 * gap
        old, new = state.current.forest.parents, made.adopted.forest.parents
        if number and np.array_equal(old, new):
            due = max(due, 4 * number)
        else:
            last_change = number
    shrinkage = options.edge_pseudo_count, options.pooled_share
    current = tree_m_step(statistics, made.adopted, pseudo_counts, *shrinkage)
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


def find_forest(samples: TreeSamples, parameters: TreeParameters, options: TreeOptions) -> TreePass:
    """Find forests under the current posteriors, in a pass that counts all pairs by state.

    Returns
    -------
    Statistics for the new forests, and the parameters as far as they are known: variables keep the PMF that they have.
    Where cells are missing, statistics are of the samples that hold both variables; the next pass takes all.
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
            gains = measure_edge_gains(mass[state - chunk.start], offsets, options.penalty)
            if options.shared:
                total = total + gains
            else:
                parents[state] = grow_forest(gains)
    if options.shared:
        parents[:] = grow_forest(np.asarray(total))
    forest = Forest(parents, offsets)
    counts = forest.spread_levels(parameters.forest.sum_levels(singles.mass))
    for chunk in chunks:
        if len(chunks) > 1:
            mass = samples.count_pairs(parameters, chunk.start, len(chunk))
        is_in = (forest.states >= chunk.start) & (forest.states < chunk.stop)
        joined = np.flatnonzero(forest.has_parent & is_in)
        states, above = forest.states[joined] - chunk.start, forest.levels_above[joined]
        counts[joined] = mass[states, above, forest.levels[joined]]
    # without mass, variables keep the PMF that they have
    own = parameters.forest.find_marginals(parameters.tables)
    adopted = TreeParameters(parameters.prior, forest, forest.spread_levels(own))
    return TreePass(replace(singles, mass=counts), adopted)
